use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::*;
use crate::archive::{self, Archive, Artifact, Segment};
use crate::capsule::{self, Registration};
use crate::dead_letter;
use crate::error_code::ErrorCode;
use crate::event::{CloudEvent, Header, Recorded};
use crate::id::{EventId, RunId};
use crate::run::fixtures::{NOW, child, ended, error, file, image, launched, launched_child, root};
use crate::run::{Ended, Event as RunEvent, LogsSummary, Outcome, Payload};
use crate::spending::{self, Answered, Contents, ModelCall, Settled};
use crate::subject::Label;
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

    fn register(mut self, tenant: &str, registration: Registration, time: Timestamp) -> Self {
        let tenant = tenant.parse().expect("the name of a tenant");
        let event = capsule::Event::Registered(registration);
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

/// The log of one tree that has ended.
fn one_tree() -> Log {
    Log::default().run(root(), [begun(), end()])
}

/// Everything that trees of the fixtures name, and something that nothing names.
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

/// Which of the store may go, by the texts whose digests they are.
fn check(retention: &Retention, now: Timestamp, log: &Log, expected: &[&str]) {
    let plan = plan(retention, now, log);
    let mut expected: Vec<Digest> = expected.iter().map(Digest::of).collect();
    expected.sort_unstable();
    let found: Vec<Digest> = plan.collect.iter().map(|found| found.digest).collect();
    assert_eq!(found, expected, "{plan:?}");
}

#[test]
fn without_a_policy_only_what_nothing_names_goes() {
    check(&retention([]), later(1_000), &one_tree(), &["nobody's"]);
    let plan = plan(&retention([]), later(1_000), &one_tree());
    assert_eq!(plan.collect[0].class, None);
    assert_eq!(plan.kept[&Kept::NoPolicy].artifacts, 6);
}

#[test]
fn each_class_goes_in_its_own_time() {
    let retention = retention([policy("all", 1, 5, 9)]);
    let log = one_tree();
    let all = ["nobody's", "logs", "penguins.csv", "report.pdf"];
    check(&retention, later(1), &log, &all[..2]);
    check(&retention, later(4), &log, &all[..2]);
    check(&retention, later(5), &log, &all);
    let more = [&all[..], &["archive", "content", "schema"]].concat();
    check(&retention, later(9), &log, &more);
}

#[test]
fn the_longest_of_all_policies_for_a_tree_counts() {
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
    check(&retention, later(8), &log, &["nobody's"]);
    check(&retention, later(9), &log, &gone);
}

#[test]
fn what_was_put_a_moment_ago_stays_whatever_is_laid_down() {
    let retention = retention([policy("all", 0, 0, 0)]);
    let now = NOW + UNNAMED_FOR - SignedDuration::from_secs(2);
    check(&retention, now, &one_tree(), &[]);
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
fn a_tree_that_goes_on_keeps_all_that_it_names() {
    let retention = retention([policy("all", 0, 0, 0)]);
    let live = Log::default().run(root(), [begun()]);
    let ended = ["nobody's", "logs", "report.pdf"];
    check(&retention, later(9), &live, &ended);
    // The root has ended, and somebody below it has not.
    let below = RunEvent::Launched(Box::new(launched_child()));
    let log = Log::default()
        .run(root(), [begun()])
        .run(child(), [below.clone()])
        .run(root(), [end()]);
    check(&retention, later(9), &log, &["nobody's"]);
    let log = log.run(child(), [end()]);
    assert_eq!(plan(&retention, later(9), &log).collect.len(), 7);
}

#[test]
fn a_tree_that_is_held_keeps_all_that_it_names() {
    let mut retention = retention([policy("all", 0, 0, 0)]);
    retention.holds.insert(root(), hold());
    check(&retention, later(9), &one_tree(), &["nobody's"]);
    let kept = plan(&retention, later(9), &one_tree()).kept;
    assert_eq!(kept[&Kept::Held].artifacts, 6);
}

#[test]
fn a_registered_capsule_keeps_what_it_needs_and_its_former_version_goes_by_policy() {
    let registration = |content: &str| Registration {
        name: "survey".parse().expect("a name"),
        title: None,
        description: None,
        aliases: Vec::new(),
        content: Digest::of(content),
        schema: Digest::of("schema"),
        agent: None,
        tools: None,
        image: image(),
        resources: capsule::Resources::default(),
        handoffs: capsule::Handoffs::Open,
        models: None,
        needs: capsule::Needs::default(),
        label: Label::any(),
        registered_by: "operator".into(),
    };
    let log = one_tree().register("default", registration("content"), NOW);
    let zero = retention([policy("all", 0, 0, 0)]);
    let files = ["nobody's", "logs", "penguins.csv", "report.pdf"];
    check(&zero, later(9), &log, &files);
    // Only the packed directory is another one, since a day ago.
    let log = log.register("default", registration("another content"), later(8));
    check(&zero, later(8) + UNNAMED_FOR / 2, &log, &files);
    let gone = [&files[..], &["content"]].concat();
    check(&zero, later(9) + UNNAMED_FOR, &log, &gone);
    check(&retention([]), later(99), &log, &["nobody's"]);
    // Somebody else's capsule of this name is another one.
    let log = log.register("acme", registration("content"), NOW);
    check(&zero, later(9) + UNNAMED_FOR, &log, &files);
}

#[test]
fn a_policy_may_be_for_some_tenants_only() {
    let others = Policy {
        for_tenants: vec!["acme".parse().expect("a tenant")],
        ..policy("acme", 0, 0, 0)
    };
    check(&retention([others]), later(9), &one_tree(), &["nobody's"]);
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
fn a_node_whose_clock_is_behind_makes_no_tree_old() {
    let mut log = Log::default();
    let mut add = |event: RunEvent, time| {
        let subject = event.subject(&Tenant::default(), root());
        log.add(&subject, time, event);
    };
    add(begun(), later(7));
    add(end(), NOW);
    let retention = retention([policy("all", 1, 1, 1)]);
    check(&retention, later(7), &log, &["nobody's"]);
    assert_eq!(plan(&retention, later(8), &log).collect.len(), 7);
}

#[test]
fn a_dead_letter_keeps_its_tree_until_somebody_has_dealt_with_it() {
    let zero = retention([policy("all", 0, 0, 0)]);
    let reason = serde_json::json!({"reason": "attempts_lost"});
    let error = error(ErrorCode::DeadLetter).with_detail(reason);
    let given_up = Ended::without_start(6, Outcome::Failed, error);
    let given_up = RunEvent::Ended(Box::new(given_up));
    let mut log = Log::default().run(root(), [begun(), given_up]);
    let files = ["nobody's", "logs", "report.pdf"];
    check(&zero, later(9), &log, &files);
    let event = dead_letter::Event::Purged {
        run: root(),
        requested_by: "operator".into(),
    };
    log.add(&event.subject(&Tenant::default()), NOW, event);
    assert_eq!(plan(&zero, later(9), &log).collect.len(), 7);
}

#[test]
fn what_comes_after_the_end_goes_with_its_tree() {
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
    check(&retention([policy("all", 9, 9, 9)]), later(8), &log, &[]);
    let zero = retention([policy("all", 0, 0, 0)]);
    assert_eq!(plan(&zero, later(9), &log).collect.len(), 7);
}

#[test]
fn the_image_of_a_build_goes_with_its_capsules_class() {
    let built = RunEvent::Ended(Box::new(Ended {
        output: Some(Payload::Inline(
            serde_json::to_value(image()).expect("plain data"),
        )),
        ..ended(1)
    }));
    let log = Log::default().run(root(), [begun(), built]);
    let retention = retention([policy("all", 0, 0, 100)]);
    let gone = ["nobody's", "logs", "penguins.csv", "report.pdf"];
    check(&retention, later(9), &log, &gone);
}

#[test]
fn what_is_not_understood_keeps_everything_that_it_may_name() {
    let mut log = one_tree();
    let text = format!(
        r#"{{"type":"dev.aod.log.archived.v9","data":{{"x":"{}"}}}}"#,
        Digest::of("nobody's")
    );
    for subject in ["ev.default.log.1.archived", "ev.default.capsule.a.moved"] {
        log.0.push((subject.into(), text.clone().into_bytes()));
        check(&retention([]), later(9), &log, &[]);
        log.0.pop();
    }
    check(&retention([]), later(9), &log, &["nobody's"]);
    // What says that something was collected does not name it.
    let event = ArtifactEvent::Collected {
        artifacts: vec![Digest::of("nobody's")],
        size_bytes: 10,
        requested_by: "operator".into(),
    };
    log.add(&event.subject(), NOW, event);
    check(&retention([]), later(9), &log, &["nobody's"]);
}

#[test]
fn what_operators_did_adds_up() {
    let event = |sequence, event: Event| {
        let header = Header {
            id: EventId::new(Uuid::from_u128(sequence)),
            source: "/test".into(),
            time: NOW,
        };
        let bytes = CloudEvent::new(header, event.about(), None, event);
        let bytes = bytes.encode().expect("a small event");
        let sequence = u64::try_from(sequence).expect("a small number");
        Recorded::decode(sequence, &bytes).expect("an event of ours")
    };
    let requested_by = || "operator".to_owned();
    let mut found = Retention::default();
    let set = |policy| Event::PolicySet {
        policy,
        requested_by: requested_by(),
    };
    found.apply(event(1, set(policy("all", 1, 1, 1))));
    found.apply(event(2, set(policy("all", 2, 2, 2))));
    found.apply(event(
        3,
        Event::Held {
            run: root(),
            reason: "a lawsuit".into(),
            requested_by: requested_by(),
        },
    ));
    let expected = Retention {
        holds: BTreeMap::from([(root(), hold())]),
        last: 3,
        ..retention([policy("all", 2, 2, 2)])
    };
    assert_eq!(found, expected);
    found.apply(event(
        4,
        Event::HoldRemoved {
            run: root(),
            requested_by: requested_by(),
        },
    ));
    found.apply(event(
        5,
        Event::PolicyRemoved {
            name: "all".parse().expect("a name"),
            requested_by: requested_by(),
        },
    ));
    let nothing = Retention {
        last: 5,
        ..Retention::default()
    };
    assert_eq!(found, nothing);
}

#[test]
fn one_event_tells_of_artifacts_with_one_first_digit_and_fits() {
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
    let mut told = Vec::new();
    for batch in batches(&collect) {
        let artifacts: Vec<Digest> = batch.iter().map(|found| found.digest).collect();
        let event = ArtifactEvent::Collected {
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
        told.extend(artifacts);
    }
    assert_eq!(told, digests);
}

#[test]
fn times_go_there_and_back() {
    for (text, seconds) in [
        ("0d", 0),
        ("30d", 30 * DAY),
        ("25h", 25 * 3_600),
        ("90m", 5_400),
        ("45s", 45),
    ] {
        assert_eq!(text.parse(), Ok(Keep::Seconds(seconds)), "{text}");
        assert_eq!(Keep::Seconds(seconds).to_string(), text);
    }
    assert_eq!("forever".parse(), Ok(Keep::Forever));
    assert_eq!(
        "7200s".parse::<Keep>().map(|keep| keep.to_string()),
        Ok("2h".into())
    );
    for text in [
        "",
        "d",
        "30",
        "-1d",
        "+1d",
        "1.5d",
        "1y",
        "99999999999999999999d",
        "40000d",
        "Forever",
    ] {
        assert!(text.parse::<Keep>().is_err(), "{text}");
    }
    assert!(Keep::Forever > Keep::Seconds(KEEP_SECONDS_MAX));
}
