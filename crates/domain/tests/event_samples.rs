//! The stored samples of all events in `docs/contracts/events`: every program reads old samples, and writes events in
//! the same form.
//!
//! `AOD_UPDATE_CONTRACTS=1` writes the samples of new types. If a sample no longer matches, its type needs a new
//! version in addition to the old one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use aod_domain::access::{self, Role, Token};
use aod_domain::archive::{self, Archive, Artifact, Segment};
use aod_domain::audit::SealKey;
use aod_domain::capsule::base::{Base, StoredBase};
use aod_domain::capsule::{
    self, Blob, Handoffs, ImageContent, Needs, Registration, Removed, Resources,
};
use aod_domain::chain::Chain as _;
use aod_domain::dead_letter;
use aod_domain::digest::Digest;
use aod_domain::event::{CloudEvent, Header};
use aod_domain::file;
use aod_domain::flow::{self, Granted, KeyPart, Rate, Rule};
use aod_domain::id::{EventId, NodeId, RunId, TokenId};
use aod_domain::node;
use aod_domain::placement::{self, Near, Requirements, Size};
use aod_domain::retention::{self, ArtifactEvent, Keep, Policy, Retention};
use aod_domain::run::fixtures::{NOW, child, every_event, image, launched, launched_child, root};
use aod_domain::run::{
    CallRefused, Egress, EgressRefused, Event, Launched, Note, NoteKind, Outcome, SealedTree, Work,
};
use aod_domain::spending::{
    self, Answered, Contents, Cost, Kept, ModelCall, Settled, Tokens, Worst,
};
use aod_domain::subject::Pool;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/contracts/events")
}

/// Compares `event` with its stored sample, and reads the sample; returns the name of its file.
fn check<E>(event: E, subject: &str) -> String
where
    E: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    check_variant(event, subject, "")
}

/// Like [`check`], for an event with optional fields that the first sample lacks: `variant` names the sample.
fn check_variant<E>(event: E, subject: &str, variant: &str) -> String
where
    E: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let header = Header {
        id: EventId::new(Uuid::from_u128(1)),
        source: "/node/node_00000000000000000000000004".into(),
        time: NOW,
    };
    let sample = CloudEvent::new(header, subject.into(), Some(Digest::of("previous")), event);
    let value = serde_json::to_value(&sample).expect("events are JSON");
    let name = format!("{}{variant}.json", value["type"].as_str().expect("a type"));
    let path = directory().join(&name);
    let text = format!("{value:#}\n");
    if std::env::var_os("AOD_UPDATE_CONTRACTS").is_some() && !path.exists() {
        std::fs::create_dir_all(directory()).expect("docs can be written");
        std::fs::write(&path, &text).expect("docs can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; AOD_UPDATE_CONTRACTS=1 writes it",
            path.display()
        )
    });
    assert_eq!(
        stored, text,
        "{name}: a stored shape never changes; add a version"
    );
    let read =
        CloudEvent::<E>::decode(stored.as_bytes()).expect("a stored sample is read for ever");
    assert_eq!(read, sample, "{name}");
    name
}

/// A seal of a whole tree.
fn sealed_tree() -> Event {
    let header = Header {
        id: EventId::new(Uuid::from_u128(1)),
        source: "/node/node_00000000000000000000000004".into(),
        time: NOW,
    };
    let tree = SealedTree {
        events: 12,
        last: 345,
        digest: Digest::of("tree"),
    };
    let key = SealKey::from_seed(&[7; 32]);
    Event::Sealed(key.seal(root(), &header, Digest::of("previous"), tree))
}

fn notes() -> Vec<Note> {
    let note = |number| NoteKind {
        attempt: 1,
        number,
        callee: Some(child()),
        text: Some("for people".into()),
        previous: Some(Digest::of("the note before")),
    };
    vec![
        Note::PreparationStarted(note(1)),
        Note::CapsuleStarted(note(2)),
        Note::WaitStarted(note(3)),
        Note::WaitEnded(note(4)),
        Note::CollectionStarted(note(5)),
        Note::CallRefused(CallRefused {
            kind: note(6),
            target: "Capsule B".into(),
            code: "target_not_allowed".into(),
        }),
        Note::EgressClosed(Egress {
            kind: note(7),
            host: "api.example.com".into(),
            port: 443,
            address: "93.184.216.34".parse().expect("an address"),
            bytes_sent: 517,
            bytes_received: 4_096,
            duration_ms: 250,
        }),
        Note::EgressRefused(EgressRefused {
            kind: note(8),
            host: "metadata.example.com".into(),
            port: Some(443),
            code: "egress_refused".into(),
        }),
    ]
}

fn registration() -> Registration {
    Registration {
        name: "capsule-b".parse().expect("a name"),
        title: Some("Capsule B".into()),
        description: Some("draws charts".into()),
        aliases: vec!["B".into()],
        content: Digest::of("content"),
        schema: Digest::of("schema"),
        agent: Some(Digest::of("agent")),
        tools: Some(Digest::of("tools")),
        workflow: None,
        image: image(),
        bases: Vec::new(),
        resources: Resources::default(),
        handoffs: Handoffs::Listed(vec!["chart".into()]),
        models: None,
        needs: Needs::default(),
        pool: Pool::any(),
        registered_by: "operator".into(),
    }
}

/// A base image from a registry below the capsule's own layers, and one that was made on a host.
fn registration_with_bases() -> Registration {
    let id = |name: &str| format!("sha256:{}", Digest::of(name));
    Registration {
        bases: vec![
            Base {
                reference: "python:3.11-slim".into(),
                image: id("python"),
                digest: Some(format!("python@{}", id("in a registry"))),
                stored: Some(StoredBase {
                    manifest: Digest::of("manifest of python"),
                    config: None,
                    layers: 1,
                }),
            },
            Base {
                reference: "tools:local".into(),
                image: id("tools"),
                digest: None,
                stored: None,
            },
        ],
        ..registration()
    }
}

fn spending_events() -> [spending::Event; 2] {
    let call = ModelCall {
        id: EventId::new(Uuid::from_u128(9)),
        run: child(),
        attempt: 1,
        provider: "openai".into(),
        model: "gpt-5.2".into(),
    };
    let settled = Settled {
        call: call.clone(),
        answered: Answered::Whole,
        status: Some(200),
        tokens: Some(Tokens {
            input: 1_200,
            cached_input: 1_000,
            output: 85,
        }),
        cost: Some(Cost::from_picodollars(1_715_000_000)),
        tools: vec!["search".into()],
        tool_calls: 1,
        is_streamed: true,
        first_byte_ms: Some(310),
        duration_ms: 1_450,
        contents: None,
    };
    let worst = Worst {
        tokens: 9_392,
        cost: Some(Cost::from_picodollars(116_788_000_000)),
    };
    [
        spending::Event::Reserved { call, worst },
        spending::Event::Settled(Box::new(settled)),
    ]
}

fn retention_events() -> [retention::Event; 4] {
    let policy = Policy {
        name: "birds".parse().expect("a name"),
        for_tenants: vec!["acme".parse().expect("a tenant")],
        for_capsules: vec!["survey".parse().expect("a name")],
        for_labels: BTreeMap::from([("team".into(), "birds".into())]),
        for_outcomes: vec![Outcome::Succeeded, Outcome::TimedOut],
        logs: Some(Keep::Seconds(30 * 24 * 60 * 60)),
        files: Some(Keep::Forever),
        capsules: None,
    };
    let (name, requested_by) = (policy.name.clone(), || "operator".to_owned());
    [
        retention::Event::PolicySet {
            policy,
            requested_by: requested_by(),
        },
        retention::Event::PolicyRemoved {
            name,
            requested_by: requested_by(),
        },
        retention::Event::HoldPlaced {
            run: root(),
            reason: "a lawsuit".into(),
            requested_by: requested_by(),
        },
        retention::Event::HoldRemoved {
            run: root(),
            requested_by: requested_by(),
        },
    ]
}

fn rule_events() -> [flow::Event; 2] {
    let rule = Rule {
        name: "teams".parse().expect("a name"),
        capsules: vec!["survey".parse().expect("a name")],
        tenants: Vec::new(),
        key: vec![KeyPart::Label("team".into()), KeyPart::Capsule],
        concurrency_max: Some(5),
        rate: Some(Rate {
            runs: 100,
            seconds: 60,
        }),
        is_fair: true,
        weights: BTreeMap::from([("birds,survey".into(), 3)]),
    };
    let requested_by = String::from("operator");
    let removed = flow::Event::Removed {
        name: rule.name.clone(),
        requested_by: requested_by.clone(),
    };
    [flow::Event::Set { rule, requested_by }, removed]
}

fn archive_events() -> [archive::Event; 2] {
    let artifact = |text: &str| Artifact {
        digest: Digest::of(text),
        size_bytes: 1_234_567,
    };
    let archive = Archive {
        segment: Segment {
            first: 20_001,
            last: 40_000,
            latest: NOW,
            events: artifact("events"),
            index: artifact("index"),
        },
        floor: 1,
    };
    let released = Archive {
        floor: 20_001,
        ..archive
    };
    [
        archive::Event::Archived(archive),
        archive::Event::Released(released),
    ]
}

fn node_events(node: NodeId) -> [node::Event; 2] {
    let requested_by = || "operator".to_owned();
    [
        node::Event::Drained {
            node,
            requested_by: requested_by(),
            within_seconds: None,
        },
        node::Event::Resumed {
            node,
            requested_by: requested_by(),
        },
    ]
}

/// A rule for tenants.
fn rule_of_tenants() -> flow::Event {
    let [flow::Event::Set { rule, requested_by }, _] = rule_events() else {
        panic!("the first sets a rule");
    };
    let rule = Rule {
        tenants: vec!["acme".parse().expect("a name")],
        key: vec![KeyPart::Tenant],
        weights: BTreeMap::from([("acme".into(), 3)]),
        ..rule
    };
    flow::Event::Set { rule, requested_by }
}

fn token_events() -> [access::Event; 2] {
    let token = Token {
        id: TokenId::new(Uuid::from_u128(5)),
        name: "ci".parse().expect("a name"),
        tenant: Some("acme".parse().expect("a name")),
        role: Role::Run,
        sha256: Digest::of("secret"),
        expires_at: Some(NOW),
        requested_by: "operator".into(),
    };
    let revoked = access::Event::Revoked {
        token: token.id,
        tenant: token.tenant.clone(),
        requested_by: "operator".into(),
    };
    [access::Event::Issued(token), revoked]
}

/// The launch of a run of another tenant than the first.
fn launch_of_tenant() -> Event {
    Event::Launched(Box::new(Launched {
        tenant: "acme".parse().expect("a name"),
        ..launched()
    }))
}

/// A launch of a task.
fn task() -> Launched {
    let mut launched = launched();
    if let Work::Capsule { workflow, .. } = &mut launched.work {
        *workflow = Some(Digest::of("workflow"));
    }
    launched
}

/// A launch whose image is stored as layers.
fn layered() -> Launched {
    let mut launched = launched();
    if let Work::Capsule { image, .. } = &mut launched.work {
        let blob = |text: &str, size_bytes| Blob {
            digest: Digest::of(text),
            size_bytes,
        };
        image.content = ImageContent::Layers {
            manifest: Digest::of("manifest"),
            config: None,
            layers: vec![blob("base", 48_000_000), blob("capsule", 1_200)],
        };
    }
    launched
}

/// A launch with requirements.
fn placed() -> Launched {
    let requirements = Requirements {
        attributes: ["gpu_memory>=24", "ssd", "zone=eu"]
            .map(|text| text.parse().expect("a requirement"))
            .into(),
        devices: BTreeMap::from([("gpu".parse().expect("a name"), 2)]),
        size: Some(Size {
            cpu_millis: 8_000,
            memory_bytes: 64 << 30,
        }),
    };
    let near = Near {
        node: NodeId::new(Uuid::from_u128(4)),
        bytes: 104_857_600,
    };
    let mut launched = launched_child();
    launched.placement.requirements = requirements;
    launched.placement.near = Some(near);
    launched
}

/// The end of a call with stored contents.
fn settled_with_contents() -> spending::Event {
    let [_, spending::Event::Settled(settled)] = spending_events() else {
        panic!("the second is the end of a call");
    };
    let kept = |text: &str, dropped_bytes| Kept {
        digest: Digest::of(text),
        size_bytes: text.len() as u64,
        dropped_bytes,
    };
    let contents = Contents {
        request: Some(kept("what was asked", 0)),
        answer: Some(kept("the beginning of what was answered", 2_048)),
    };
    spending::Event::Settled(Box::new(Settled {
        contents: Some(contents),
        ..*settled
    }))
}

/// Compares the samples with tenants; returns the names of their files.
fn check_tenants(run: &RunId) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    names.insert(check_variant(rule_of_tenants(), "rule/teams", ".tenants"));
    let launch = launch_of_tenant();
    names.insert(check_variant(launch, &run.to_string(), ".tenant"));
    for event in token_events() {
        let about = event.token().to_string();
        names.insert(check(event, &about));
    }
    let digest = Digest::of("table");
    let uploaded = file::Event::Uploaded {
        digest,
        size_bytes: 5,
        requested_by: "acme/ci".into(),
    };
    names.insert(check(uploaded, &format!("file/{digest}")));
    names
}

/// Commands of operators to nodes, and actions on dead letters; returns the names of the files.
fn check_operator_commands() -> Vec<String> {
    let node = NodeId::new(Uuid::from_u128(4));
    let mut names = Vec::new();
    for event in node_events(node) {
        names.push(check(event, &node.to_string()));
    }
    for event in [
        dead_letter::Event::Requeued {
            run: child(),
            requeued_as: dead_letter::requeued_as(child()),
            requested_by: "operator".into(),
        },
        dead_letter::Event::Purged {
            run: child(),
            requested_by: "operator".into(),
        },
    ] {
        names.push(check(event, &child().to_string()));
    }
    names
}

fn check_capsules() -> [String; 3] {
    let registered = |registration| capsule::Event::Registered(Box::new(registration));
    let removed = Removed {
        name: registration().name,
        requested_by: "operator".into(),
    };
    let about = "capsule/capsule-b";
    [
        check(registered(registration()), about),
        check_variant(registered(registration_with_bases()), about, ".bases"),
        check(capsule::Event::Removed(removed), about),
    ]
}

#[test]
fn every_event_has_a_sample_that_is_read() {
    let run: RunId = root();
    let mut names = BTreeSet::new();
    for event in every_event() {
        names.insert(check::<Event>(event, &run.to_string()));
    }
    names.insert(check_variant(sealed_tree(), &run.to_string(), ".tree"));
    for note in notes() {
        names.insert(check::<Note>(note, &run.to_string()));
    }
    names.extend(check_capsules());
    names.extend(check_operator_commands());
    for event in rule_events() {
        names.insert(check(event, "rule/teams"));
    }
    names.extend(check_tenants(&run));
    for event in retention_events() {
        let about = Retention::default().about(&event);
        names.insert(check(event, &about));
    }
    let deleted = ArtifactEvent::Deleted {
        artifacts: vec![Digest::of("logs"), Digest::of("report.pdf")],
        size_bytes: 12_345,
        requested_by: "operator".into(),
    };
    names.insert(check(deleted, "artifacts"));
    let granted = Granted::Granted {
        runs: vec![root(), child()],
        rules: 12,
    };
    names.insert(check(granted, "admission"));
    for event in archive_events() {
        names.insert(check(event, "archive"));
    }
    let placed = placed();
    let asked = placement::Event::QueueOpened {
        pool: placed.placement.pool.clone(),
        requirements: placed.placement.requirements.clone(),
    };
    names.insert(check(asked, "placement"));
    let launch = Event::Launched(Box::new(placed));
    names.insert(check_variant(launch, &run.to_string(), ".placed"));
    let launch = Event::Launched(Box::new(layered()));
    names.insert(check_variant(launch, &run.to_string(), ".layers"));
    let launch = Event::Launched(Box::new(task()));
    names.insert(check_variant(launch, &run.to_string(), ".task"));
    for event in spending_events() {
        names.insert(check(event, &child().to_string()));
    }
    let event = settled_with_contents();
    names.insert(check_variant(event, &child().to_string(), ".contents"));
    let stored: BTreeSet<String> = std::fs::read_dir(directory())
        .expect("samples are stored")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    assert_eq!(
        stored, names,
        "every stored sample belongs to a type that is tested here"
    );
}
