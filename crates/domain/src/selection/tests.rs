use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::dead_letter;
use crate::digest::Digest;
use crate::id::{NodeId, TokenId};
use crate::run::fixtures::{NOW, child, every_event, root};
use crate::run::{Note, NoteKind};

fn kinds(words: &[&str]) -> Vec<&'static Kind> {
    let found = words.iter().map(|word| Kind::find(word));
    let found: Result<Vec<_>, _> = found.collect();
    found.expect("types of events").concat()
}

fn takes(selection: &Selection, subject: &str) -> bool {
    let data = json!({});
    selection.takes(&Candidate {
        subject,
        time: NOW,
        data: &data,
    })
}

/// Subjects of all kinds, as in the log.
fn subjects() -> Vec<String> {
    let states = every_event();
    let mut subjects: Vec<String> = states
        .iter()
        .map(|event| event.subject(&Tenant::default(), child()).to_string())
        .collect();
    let kind = NoteKind {
        attempt: 1,
        number: 1,
        callee: None,
        text: None,
        previous: None,
    };
    let tenant = &Tenant::default();
    subjects.push(
        Note::CapsuleStarted(kind)
            .subject(tenant, child())
            .to_string(),
    );
    subjects.push(subject::spending_event(tenant, child(), "settled").to_string());
    let chart = "chart".parse().expect("a name");
    subjects.push(subject::capsule_event(tenant, &chart, "registered").to_string());
    let node = NodeId::new(Uuid::from_u128(1));
    subjects.push(subject::node_event(node, "drained").to_string());
    let purged = dead_letter::Event::Purged {
        run: child(),
        requested_by: "operator".into(),
    };
    subjects.push(purged.subject(tenant).to_string());
    let name = "teams".parse().expect("a name");
    subjects.push(subject::rule_event(&name, "set").to_string());
    subjects.push(subject::admission_event("granted").to_string());
    let token = TokenId::new(Uuid::from_u128(1));
    subjects.push(subject::token_event(Some(tenant), token, "issued").to_string());
    subjects.push(subject::file_event(tenant, &Digest::of("file"), "uploaded").to_string());
    subjects
}

#[test]
fn every_type_is_found_by_its_name_and_by_its_last_word() {
    for kind in Kind::ALL {
        assert_eq!(Kind::find(kind.name), Ok(vec![kind]));
        let found = Kind::find(kind.word).expect("a type");
        assert!(found.contains(&kind), "{}", kind.word);
    }
    assert!(Kind::find("lost").is_err());
    for event in every_event() {
        let value = serde_json::to_value(&event).expect("plain data");
        let name = value["type"].as_str().expect("a type");
        let selection = Selection {
            kinds: kinds(&[name]),
            ..Selection::default()
        };
        let subject = event.subject(&Tenant::default(), child()).to_string();
        assert!(takes(&selection, &subject), "{subject}");
    }
}

#[test]
fn broker_filter_covers_conditions_on_subjects() {
    let check = |selection: Selection, expected: &str| assert_eq!(selection.filter(), expected);
    check(Selection::default(), "ev.>");
    let (root, child) = (root(), child());
    let (of_root, of_child) = (root.token(), child.token());
    let scope = Some(Scope::Tree(child));
    let whole = Selection {
        scope,
        ..Selection::default()
    };
    check(whole, &format!("ev.*.run.{of_root}.*.>"));
    let ends = Selection {
        scope: Some(Scope::Run(child)),
        tenant: Some(Tenant::default()),
        kinds: kinds(&["ended"]),
        ..Selection::default()
    };
    check(
        ends,
        &format!("ev.default.run.{of_root}.{of_child}.s.ended"),
    );
    let several = Selection {
        kinds: kinds(&["leased", "ended"]),
        ..Selection::default()
    };
    check(several, "ev.*.run.*.*.s.*");
    let registered = Selection {
        kinds: kinds(&["registered"]),
        capsule: Some("chart".parse().expect("a name")),
        ..Selection::default()
    };
    check(registered, "ev.*.capsule.chart.registered");
}

#[test]
fn selected_events_match_the_broker_filter() {
    let scopes = [None, Some(Scope::Run(child())), Some(Scope::Tree(root()))];
    let capsules = [None, Some("chart".parse().expect("a name"))];
    let sets: [&[&str]; 5] = [
        &[],
        &["ended"],
        &["launched", "ended"],
        &["ended", "purged"],
        &["drained", "registered", "settled"],
    ];
    let mut taken = 0;
    for scope in scopes {
        for capsule in &capsules {
            for set in sets {
                let selection = Selection {
                    kinds: kinds(set),
                    scope,
                    capsule: capsule.clone(),
                    ..Selection::default()
                };
                for subject in subjects() {
                    if takes(&selection, &subject) {
                        let filter = selection.filter();
                        assert!(subject::is_under(&subject, &filter), "{subject} {filter}");
                        taken += 1;
                    }
                }
            }
        }
    }
    assert!(taken > 50, "{taken}");
}

#[test]
fn events_outside_the_selection_are_not_taken() {
    let selection = Selection {
        kinds: kinds(&["leased", "purged"]),
        scope: Some(Scope::Run(child())),
        ..Selection::default()
    };
    let found: Vec<String> = subjects()
        .into_iter()
        .filter(|subject| takes(&selection, subject))
        .collect();
    assert_eq!(found.len(), 2, "{found:?}");
    let other = Selection {
        scope: Some(Scope::Run(root().child(&Digest::of("other")))),
        ..selection
    };
    assert!(!subjects().iter().any(|subject| takes(&other, subject)));
}

#[test]
fn a_capsule_has_its_registrations_and_the_events_of_its_runs() {
    let selection = Selection {
        capsule: Some("chart".parse().expect("a name")),
        ..Selection::default()
    };
    let registered = |name: &str| {
        let name = name.parse().expect("a name");
        subject::capsule_event(&Tenant::default(), &name, "registered")
    };
    assert!(takes(&selection, registered("chart").as_str()));
    assert!(!takes(&selection, registered("table").as_str()));
    let lease = subject::run_event(&Tenant::default(), child(), "leased");
    assert!(takes(&selection, lease.as_str()));
    assert_eq!(selection.asks_about(lease.as_str()), Some(child()));
    let facts = |capsule: &str| LaunchFacts {
        capsule: capsule.parse().expect("a name"),
        labels: BTreeMap::from([("team".to_owned(), "birds".to_owned())]),
    };
    assert!(selection.takes_launch(&facts("chart"), &facts("survey")));
    assert!(!selection.takes_launch(&facts("survey"), &facts("chart")));
}

#[test]
fn labels_of_a_root_are_those_of_its_tree() {
    let facts = |labels: &[(&str, &str)]| LaunchFacts {
        capsule: "chart".parse().expect("a name"),
        labels: labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    };
    let selection = Selection {
        labels: vec![
            ("team".into(), "birds".into()),
            ("stage".into(), "two".into()),
        ],
        ..Selection::default()
    };
    let root = facts(&[("team", "birds")]);
    assert!(selection.takes_launch(&facts(&[("stage", "two")]), &root));
    assert!(!selection.takes_launch(&facts(&[]), &root));
    let drain = subject::node_event(NodeId::new(Uuid::from_u128(1)), "drained");
    assert!(!takes(&selection, drain.as_str()));
}

#[test]
fn words_match_values_in_any_case() {
    let data =
        json!({"error": {"message": "No Such Column", "code": 17}, "list": ["Ærø"], "no": null});
    let check = |text: &str, expected: bool| {
        let selection = Selection {
            words: words(text),
            ..Selection::default()
        };
        let candidate = Candidate {
            subject: "ev.default.node.x.drained",
            time: NOW,
            data: &data,
        };
        assert_eq!(selection.takes(&candidate), expected, "{text}");
    };
    check("column SUCH", true);
    check("17", true);
    check("ærø", true);
    check("column missing", false);
    check("message", false);
}

#[test]
fn time_search_allows_for_clock_differences() {
    let selection = Selection {
        since: Some(NOW),
        until: Some(NOW + SignedDuration::from_secs(10)),
        ..Selection::default()
    };
    let at = |seconds: i64| {
        let data = json!({});
        selection.takes(&Candidate {
            subject: "ev.default.node.x.drained",
            time: NOW + SignedDuration::from_secs(seconds),
            data: &data,
        })
    };
    assert_eq!([-1, 0, 9, 10].map(at), [false, true, true, false]);
    assert_eq!(selection.begins(), Some(NOW - CLOCKS_APART_MAX));
    assert!(!selection.is_over(NOW + SignedDuration::from_secs(10)));
    assert!(selection.is_over(NOW + SignedDuration::from_secs(10) + CLOCKS_APART_MAX));
}

#[test]
fn tenant_sees_no_events_of_other_tenants_or_of_the_cluster() {
    let of = |tenant: &str| Selection {
        tenant: Some(tenant.parse().expect("a name")),
        is_of_tenants_only: true,
        ..Selection::default()
    };
    let of_cluster = ["node", "rule", "admission", "token"];
    for subject in subjects() {
        assert!(!takes(&of("acme"), &subject), "{subject}");
        let family = subject.split('.').nth(2).expect("a family");
        let expected = !of_cluster.contains(&family);
        assert_eq!(takes(&of("default"), &subject), expected, "{subject}");
        assert!(takes(&Selection::default(), &subject), "{subject}");
    }
}
