use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::archive::{self, Archive, Artifact, Segment};
use crate::capsule::{self, Registration};
use crate::chain::Chain as _;
use crate::dead_letter;
use crate::error_code::ErrorCode;
use crate::event::{CloudEvent, Header, Recorded};
use crate::id::{EventId, RunId};
use crate::run::fixtures::{
    self, NOW, child, ended, error, file, image, launched, launched_child, root,
};
use crate::run::{Ended, Event as RunEvent, LogsSummary, Outcome, Payload};
use crate::spending::{self, Answered, Contents, ModelCall, Settled};
use crate::tenant::Tenant;

const DAY: u64 = 24 * 60 * 60;

/// Long after everything that happens at [`NOW`].
fn later(days: i64) -> Timestamp {
    NOW + SignedDuration::from_hours(24 * days)
}

/// A log, as a survey reads it.
#[derive(Default)]
struct Log(Vec<(String, Vec<u8>)>);

impl Log {
    fn add<E: serde::Serialize>(&mut self, subject: &Subject, time: Timestamp, event: E) {
        let header = Header {
            id: EventId::new(Uuid::from_u128(self.0.len() as u128)),
            source: "/test".into(),
            time,
        };
        let event = CloudEvent::new(header, "about".into(), None, event);
        let bytes = event.encode().expect("a small event");
        self.0.push((subject.to_string(), bytes));
    }

    fn run(mut self, id: RunId, events: impl IntoIterator<Item = RunEvent>) -> Self {
        for event in events {
            self.add(&event.subject(&Tenant::default(), id), NOW, event);
        }
        self
    }

    fn remove(mut self, tenant: &str, name: &str, time: Timestamp) -> Self {
        let tenant = tenant.parse().expect("the name of a tenant");
        let removed = capsule::Removed {
            name: name.parse().expect("a name"),
            requested_by: "operator".into(),
        };
        let event = capsule::Event::Removed(removed);
        self.add(&event.subject(&tenant), time, event);
        self
    }

    fn register(mut self, tenant: &str, registration: Registration, time: Timestamp) -> Self {
        let tenant = tenant.parse().expect("the name of a tenant");
        let event = capsule::Event::Registered(Box::new(registration));
        self.add(&event.subject(&tenant), time, event);
        self
    }
}

fn begun() -> RunEvent {
    RunEvent::Launched(Box::new(launched()))
}

fn end() -> RunEvent {
    RunEvent::Ended(Box::new(Ended {
        logs: Some(LogsSummary {
            digest: Digest::of("logs"),
            size_bytes: 9,
            dropped_bytes: 0,
        }),
        ..ended(1)
    }))
}

/// The log of one ended tree.
fn one_tree() -> Log {
    Log::default().run(root(), [begun(), end()])
}

/// All artifacts of the fixtures' trees, and one that nothing names.
fn store() -> Vec<Digest> {
    let named = ["archive", "content", "schema", "logs", "nobody's"];
    let files = ["penguins.csv", "report.pdf"].map(|name| file(name).digest);
    named.map(Digest::of).into_iter().chain(files).collect()
}

fn policy(name: &str, logs: u64, files: u64, capsules: u64) -> Policy {
    Policy {
        name: name.parse().expect("a name"),
        for_tenants: Vec::new(),
        for_capsules: Vec::new(),
        for_labels: BTreeMap::new(),
        for_outcomes: Vec::new(),
        logs: Some(Keep::Seconds(logs * DAY)),
        files: Some(Keep::Seconds(files * DAY)),
        capsules: Some(Keep::Seconds(capsules * DAY)),
    }
}

fn retention(policies: impl IntoIterator<Item = Policy>) -> Retention {
    let policies = policies.into_iter();
    Retention {
        policies: policies
            .map(|policy| (policy.name.clone(), policy))
            .collect(),
        ..Retention::default()
    }
}

fn hold() -> Hold {
    Hold {
        reason: "a lawsuit".into(),
        held_by: "operator".into(),
        held_at: NOW,
    }
}

/// The plan for a store whose artifacts are all as old as the trees.
fn plan(retention: &Retention, now: Timestamp, log: &Log) -> Plan {
    let mut survey = Survey::new(retention, now, UNNAMED_FOR);
    for digest in store() {
        survey.found(digest, 10, NOW - SignedDuration::from_secs(1));
    }
    for (subject, bytes) in &log.0 {
        survey.take(subject, bytes);
    }
    survey.finish()
}

/// The artifacts that may be deleted, by the texts of their digests.
fn assert_plan(retention: &Retention, now: Timestamp, log: &Log, expected: &[&str]) {
    let plan = plan(retention, now, log);
    let mut expected: Vec<Digest> = expected.iter().map(Digest::of).collect();
    expected.sort_unstable();
    let found: Vec<Digest> = plan.collect.iter().map(|found| found.digest).collect();
    assert_eq!(found, expected, "{plan:?}");
}

#[test]
fn without_policies_only_unnamed_artifacts_are_deleted() {
    assert_plan(&retention([]), later(1_000), &one_tree(), &["nobody's"]);
    let plan = plan(&retention([]), later(1_000), &one_tree());
    assert_eq!(plan.collect[0].class, None);
    assert_eq!(plan.kept[&Kept::NoPolicy].artifacts, 6);
}

#[test]
fn each_class_is_deleted_after_its_own_time() {
    let retention = retention([policy("all", 1, 5, 9)]);
    let log = one_tree();
    let all = ["nobody's", "logs", "penguins.csv", "report.pdf"];
    assert_plan(&retention, later(1), &log, &all[..2]);
    assert_plan(&retention, later(4), &log, &all[..2]);
    assert_plan(&retention, later(5), &log, &all);
    let more = [&all[..], &["archive", "content", "schema"]].concat();
    assert_plan(&retention, later(9), &log, &more);
}

#[test]
fn longest_matching_policy_counts() {
    let days = |name: &str, days| policy(name, days, days, days);
    let birds = Policy {
        for_labels: BTreeMap::from([("team".into(), "birds".into())]),
        ..days("birds", 9)
    };
    let forever = Policy {
        files: Some(Keep::Forever),
        logs: None,
        capsules: None,
        for_outcomes: vec![Outcome::Succeeded],
        ..days("results", 0)
    };
    let others = Policy {
        for_capsules: vec!["chart".parse().expect("a name")],
        ..days("others", 1_000)
    };
    let log = one_tree();
    let gone = ["nobody's", "logs", "archive", "content", "schema"];
    let retention = retention([days("short", 1), birds, forever, others]);
    assert_plan(&retention, later(8), &log, &["nobody's"]);
    assert_plan(&retention, later(9), &log, &gone);
}

#[test]
fn young_artifacts_stay_under_any_policy() {
    let retention = retention([policy("all", 0, 0, 0)]);
    let now = NOW + UNNAMED_FOR - SignedDuration::from_secs(2);
    assert_plan(&retention, now, &one_tree(), &[]);
    assert_eq!(
        plan(&retention, now, &one_tree()).kept[&Kept::Young].artifacts,
        7
    );
}

#[test]
fn segments_of_the_log_stay_for_ever() {
    let artifact = |text: &str| Artifact {
        digest: Digest::of(text),
        size_bytes: 10,
    };
    let archive = |segment: u64, floor| Archive {
        segment: Segment {
            first: segment,
            last: segment,
            latest: NOW,
            events: artifact(&format!("events {segment}")),
            index: artifact(&format!("index {segment}")),
        },
        floor,
    };
    let mut log = one_tree();
    for event in [
        archive::Event::Archived(archive(1, 1)),
        archive::Event::Archived(archive(2, 1)),
        archive::Event::Released(archive(2, 3)),
    ] {
        log.add(&event.subject(), NOW, event);
    }
    let retention = retention([policy("all", 0, 0, 0)]);
    let mut survey = Survey::new(&retention, later(9), UNNAMED_FOR);
    let of_log = ["events 1", "index 1", "events 2", "index 2"];
    for text in of_log.into_iter().chain(["nobody's"]) {
        survey.found(Digest::of(text), 10, NOW - SignedDuration::from_secs(1));
    }
    for (subject, bytes) in &log.0 {
        survey.take(subject, bytes);
    }
    let plan = survey.finish();
    let gone: Vec<Digest> = plan.collect.iter().map(|found| found.digest).collect();
    assert_eq!(gone, [Digest::of("nobody's")]);
    assert_eq!(plan.kept[&Kept::Archive].artifacts, 4);
}

#[test]
fn live_tree_keeps_all_its_artifacts() {
    let retention = retention([policy("all", 0, 0, 0)]);
    let live = Log::default().run(root(), [begun()]);
    let ended = ["nobody's", "logs", "report.pdf"];
    assert_plan(&retention, later(9), &live, &ended);
    // The root has ended, and a run below it has not.
    let below = RunEvent::Launched(Box::new(launched_child()));
    let log = Log::default()
        .run(root(), [begun()])
        .run(child(), [below.clone()])
        .run(root(), [end()]);
    assert_plan(&retention, later(9), &log, &["nobody's"]);
    let log = log.run(child(), [end()]);
    assert_eq!(plan(&retention, later(9), &log).collect.len(), 7);
}

#[test]
fn tree_with_a_hold_keeps_all_its_artifacts() {
    let mut retention = retention([policy("all", 0, 0, 0)]);
    retention.holds.insert(root(), hold());
    assert_plan(&retention, later(9), &one_tree(), &["nobody's"]);
    let kept = plan(&retention, later(9), &one_tree()).kept;
    assert_eq!(kept[&Kept::Held].artifacts, 6);
}

#[test]
fn registered_capsule_stays_and_its_former_version_follows_policies() {
    let registration = |content: &str| fixtures::registration("survey", content);
    let log = one_tree().register("default", registration("content"), NOW);
    let zero = retention([policy("all", 0, 0, 0)]);
    let files = ["nobody's", "logs", "penguins.csv", "report.pdf"];
    assert_plan(&zero, later(9), &log, &files);
    // Only the packed directory changed, a day ago.
    let log = log.register("default", registration("another content"), later(8));
    assert_plan(&zero, later(8) + UNNAMED_FOR / 2, &log, &files);
    let gone = [&files[..], &["content"]].concat();
    assert_plan(&zero, later(9) + UNNAMED_FOR, &log, &gone);
    assert_plan(&retention([]), later(99), &log, &["nobody's"]);
    // The capsule with this name of another tenant is another capsule.
    let log = log.register("acme", registration("content"), NOW);
    assert_plan(&zero, later(9) + UNNAMED_FOR, &log, &files);
    // A removed capsule is like a former version.
    let log = log.remove("acme", "survey", later(8));
    assert_plan(&zero, later(8) + UNNAMED_FOR / 2, &log, &files);
    assert_plan(&zero, later(9) + UNNAMED_FOR, &log, &gone);
}

#[test]
fn storage_of_a_capsule_counts_shared_parts_once_and_tells_what_only_it_needs() {
    let register = |log: Log, tenant: &str, name: &str, content: &str| {
        log.register(tenant, fixtures::registration(name, content), NOW)
    };
    let none = retention([]);
    let stored = |log: &Log, now| {
        let plan = plan(&none, now, log);
        let shown = plan.capsules.iter().map(|storage| {
            let (named, own) = (storage.named, storage.own);
            (
                storage.capsule.to_string(),
                named.size_bytes,
                own.size_bytes,
            )
        });
        shown.collect::<Vec<_>>()
    };
    // `schema`, `content` and `archive`, of 10 bytes each.
    let alone = register(Log::default(), "default", "survey", "content");
    assert_eq!(stored(&alone, later(9)), [("survey".into(), 30, 30)]);
    let is_young = NOW + SignedDuration::from_secs(1);
    assert_eq!(stored(&alone, is_young), [("survey".into(), 30, 30)]);
    // A capsule of another tenant shares all but the package.
    let two = register(alone, "acme", "chart", "logs");
    let both = [("chart".into(), 30, 10), ("survey".into(), 30, 10)];
    assert_eq!(stored(&two, later(9)), both);
    let kept: u64 = plan(&none, later(9), &two)
        .kept
        .values()
        .map(|it| it.artifacts)
        .sum();
    assert_eq!(kept, 4, "each artifact counts once");
    // Without a policy, an ended tree keeps what it names.
    let used = register(one_tree(), "default", "survey", "content");
    assert_eq!(stored(&used, later(9)), [("survey".into(), 30, 0)]);
    let removed = used.remove("default", "survey", NOW);
    assert_eq!(stored(&removed, later(9)), []);
}

#[test]
fn policy_for_outcomes_matches_no_version_of_a_capsule() {
    let outcomes = Policy {
        for_outcomes: vec![Outcome::Succeeded],
        ..policy("succeeded", 0, 0, 0)
    };
    let registration = |content: &str| fixtures::registration("survey", content);
    let log = Log::default().register("default", registration("content"), NOW);
    let log = log.register("default", registration("another content"), later(1));
    let unnamed = ["nobody's", "logs", "penguins.csv", "report.pdf"];
    assert_plan(&retention([outcomes]), later(9), &log, &unnamed);
}

#[test]
fn policy_can_match_some_tenants_only() {
    let others = Policy {
        for_tenants: vec!["acme".parse().expect("a tenant")],
        ..policy("acme", 0, 0, 0)
    };
    assert_plan(&retention([others]), later(9), &one_tree(), &["nobody's"]);
    let own = Policy {
        for_tenants: vec!["acme".parse().expect("a tenant"), Tenant::default()],
        ..policy("both", 0, 0, 0)
    };
    assert_eq!(
        plan(&retention([own]), later(9), &one_tree()).collect.len(),
        7
    );
}

#[test]
fn slow_node_clock_makes_no_tree_old() {
    let mut log = Log::default();
    let mut add = |event: RunEvent, time| {
        let subject = event.subject(&Tenant::default(), root());
        log.add(&subject, time, event);
    };
    add(begun(), later(7));
    add(end(), NOW);
    let retention = retention([policy("all", 1, 1, 1)]);
    assert_plan(&retention, later(7), &log, &["nobody's"]);
    assert_eq!(plan(&retention, later(8), &log).collect.len(), 7);
}

#[test]
fn dead_letter_keeps_its_tree_while_open() {
    let zero = retention([policy("all", 0, 0, 0)]);
    let reason = serde_json::json!({"reason": "attempts_lost"});
    let error = error(ErrorCode::DeadLetter).with_detail(reason);
    let given_up = Ended::without_start(6, Outcome::Failed, error);
    let given_up = RunEvent::Ended(Box::new(given_up));
    let mut log = Log::default().run(root(), [begun(), given_up]);
    let files = ["nobody's", "logs", "report.pdf"];
    assert_plan(&zero, later(9), &log, &files);
    let event = dead_letter::Event::Purged {
        run: root(),
        requested_by: "operator".into(),
    };
    log.add(&event.subject(&Tenant::default()), NOW, event);
    assert_eq!(plan(&zero, later(9), &log).collect.len(), 7);
}

#[test]
fn artifacts_named_after_the_end_follow_their_tree() {
    let said = |kept: &str| {
        let call = ModelCall {
            id: EventId::new(Uuid::from_u128(1)),
            run: child(),
            attempt: 1,
            provider: "openai".into(),
            model: "tiny".into(),
        };
        let contents = Contents {
            request: Some(spending::Kept {
                digest: Digest::of(kept),
                size_bytes: 10,
                dropped_bytes: 0,
            }),
            answer: None,
        };
        spending::Event::Settled(Box::new(Settled {
            call,
            answered: Answered::Whole,
            status: Some(200),
            tokens: None,
            cost: None,
            tools: Vec::new(),
            tool_calls: 0,
            is_streamed: false,
            first_byte_ms: None,
            duration_ms: 1,
            contents: Some(contents),
        }))
    };
    let mut log = one_tree();
    let event = said("nobody's");
    log.add(&event.subject(&Tenant::default()), NOW, event);
    assert_plan(&retention([policy("all", 9, 9, 9)]), later(8), &log, &[]);
    let zero = retention([policy("all", 0, 0, 0)]);
    assert_eq!(plan(&zero, later(9), &log).collect.len(), 7);
}

#[test]
fn image_and_bases_of_a_build_follow_the_class_of_capsules() {
    let output = |bases: Value| {
        let mut output = serde_json::to_value(image()).expect("plain data");
        output["bases"] = bases;
        RunEvent::Ended(Box::new(Ended {
            output: Some(Payload::Inline(output)),
            ..ended(1)
        }))
    };
    let stored =
        json!({"manifest": Digest::of("nobody's"), "config": Digest::of("logs"), "layers": 1});
    let bases = json!([{"reference": "python", "image": "sha256:0", "stored": stored}]);
    let retention = retention([policy("all", 0, 0, 100)]);
    for (bases, gone) in [
        (bases, &["penguins.csv", "report.pdf"][..]),
        (
            json!([]),
            &["nobody's", "logs", "penguins.csv", "report.pdf"],
        ),
        (
            json!("of a later version"),
            &["nobody's", "logs", "penguins.csv", "report.pdf"],
        ),
    ] {
        let log = Log::default().run(root(), [begun(), output(bases)]);
        assert_plan(&retention, later(9), &log, gone);
    }
}

#[test]
fn unknown_event_keeps_every_artifact_it_may_name() {
    let mut log = one_tree();
    let text = format!(
        r#"{{"type":"dev.aod.log.archived.v9","data":{{"x":"{}"}}}}"#,
        Digest::of("nobody's")
    );
    for subject in ["ev.default.log.1.archived", "ev.default.capsule.a.moved"] {
        log.0.push((subject.into(), text.clone().into_bytes()));
        assert_plan(&retention([]), later(9), &log, &[]);
        log.0.pop();
    }
    assert_plan(&retention([]), later(9), &log, &["nobody's"]);
    // An event about a deletion does not name the artifact.
    let event = ArtifactEvent::Deleted {
        artifacts: vec![Digest::of("nobody's")],
        size_bytes: 10,
        requested_by: "operator".into(),
    };
    log.add(&event.subject(), NOW, event);
    assert_plan(&retention([]), later(9), &log, &["nobody's"]);
}

#[test]
fn policies_and_holds_follow_from_their_events() {
    let event = |sequence, event: Event| {
        let header = Header {
            id: EventId::new(Uuid::from_u128(sequence)),
            source: "/test".into(),
            time: NOW,
        };
        let bytes = CloudEvent::new(header, "retention".into(), None, event);
        let bytes = bytes.encode().expect("a small event");
        let sequence = u64::try_from(sequence).expect("a small number");
        Recorded::decode(sequence, &bytes).expect("an event of ours")
    };
    let requested_by = || "operator".to_owned();
    let mut found = Retention::default();
    let apply = |found: &mut Retention, recorded| {
        let Ok(()) = found.apply(recorded);
    };
    let set = |policy| Event::PolicySet {
        policy,
        requested_by: requested_by(),
    };
    apply(&mut found, event(1, set(policy("all", 1, 1, 1))));
    apply(&mut found, event(2, set(policy("all", 2, 2, 2))));
    apply(
        &mut found,
        event(
            3,
            Event::HoldPlaced {
                run: root(),
                reason: "a lawsuit".into(),
                requested_by: requested_by(),
            },
        ),
    );
    let expected = Retention {
        holds: BTreeMap::from([(root(), hold())]),
        last: found.last,
        ..retention([policy("all", 2, 2, 2)])
    };
    assert_eq!(found, expected);
    apply(
        &mut found,
        event(
            4,
            Event::HoldRemoved {
                run: root(),
                requested_by: requested_by(),
            },
        ),
    );
    apply(
        &mut found,
        event(
            5,
            Event::PolicyRemoved {
                name: "all".parse().expect("a name"),
                requested_by: requested_by(),
            },
        ),
    );
    let nothing = Retention {
        last: found.last,
        ..Retention::default()
    };
    assert_eq!(found, nothing);
}

#[test]
fn deletion_event_has_artifacts_of_one_first_digit_and_fits() {
    let digest = |number: u32| Digest::of(number.to_be_bytes());
    let mut digests: Vec<Digest> = (0..10_000).map(digest).collect();
    digests.sort_unstable();
    let collect: Vec<Collectable> = digests
        .iter()
        .map(|&digest| Collectable {
            digest,
            size_bytes: 1,
            class: None,
        })
        .collect();
    let mut deleted = Vec::new();
    for batch in batches(&collect) {
        let artifacts: Vec<Digest> = batch.iter().map(|found| found.digest).collect();
        let event = ArtifactEvent::Deleted {
            artifacts: artifacts.clone(),
            size_bytes: u64::MAX,
            requested_by: "x".repeat(256),
        };
        for &digest in &artifacts {
            let filter = subject::artifacts_like(digest);
            assert!(subject::is_under(event.subject().as_str(), &filter));
        }
        let header = Header {
            id: EventId::new(Uuid::from_u128(1)),
            source: "/gateway/gateway_00000000000000000000000004".into(),
            time: NOW,
        };
        CloudEvent::new(header, "artifacts".into(), None, event)
            .encode()
            .expect("it fits an event");
        deleted.extend(artifacts);
    }
    assert_eq!(deleted, digests);
}

#[test]
fn policies_and_holds_are_bounded_and_only_existing_ones_are_removed() {
    let requested_by = || "operator".to_owned();
    let set = |name: &str| Event::PolicySet {
        policy: policy(name, 1, 1, 1),
        requested_by: requested_by(),
    };
    let removed = |name: &str| Event::PolicyRemoved {
        name: name.parse().expect("a name"),
        requested_by: requested_by(),
    };
    let names: Vec<String> = (0..POLICIES_MAX)
        .map(|number| format!("p{number}"))
        .collect();
    let mut full = retention(names.iter().map(|name| policy(name, 1, 1, 1)));
    assert_eq!(check(&full, &set("more")), Err(Rejection::TooManyPolicies));
    assert_eq!(check(&full, &set("p0")), Ok(()), "a policy is replaced");
    assert_eq!(check(&full, &removed("p0")), Ok(()));
    let unknown = Rejection::UnknownPolicy("more".parse().expect("a name"));
    assert_eq!(check(&full, &removed("more")), Err(unknown));

    let tree = |number: usize| RunId::root_of(Uuid::from_u128(number as u128));
    let placed = |number| Event::HoldPlaced {
        run: tree(number),
        reason: "a lawsuit".into(),
        requested_by: requested_by(),
    };
    let lifted = |number| Event::HoldRemoved {
        run: tree(number),
        requested_by: requested_by(),
    };
    assert_eq!(
        check(&full, &lifted(0)),
        Err(Rejection::UnknownHold(tree(0)))
    );
    full.holds = (0..HOLDS_MAX)
        .map(|number| (tree(number), hold()))
        .collect();
    assert_eq!(
        check(&full, &placed(HOLDS_MAX)),
        Err(Rejection::TooManyHolds)
    );
    assert_eq!(check(&full, &placed(0)), Ok(()), "a hold is replaced");
    assert_eq!(check(&full, &lifted(0)), Ok(()));
}
