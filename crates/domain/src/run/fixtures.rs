//! Sample runs and events, for the tests of this crate and, with the feature `fixtures`, of other crates.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::{
    Admitted, AttemptFailed, AttemptLost, CancelRequested, Delivered, Ended, Event, Exit,
    FailureKind, FileEntry, Holder, Launched, Lease, Limits, Outcome, Parent, Payload, Placement,
    Recompute, Refused, Rerun, Retries, Returned, Reuses, Run, RunError, Sealed, Snapshot,
    StepEnded, Timings, Usage, Work, WorkPosition,
};
use crate::capsule::{Handoffs, Image, ImageContent, Needs, Registration, Resources};
use crate::digest::Digest;
use crate::error_code::ErrorCode;
use crate::event::{CloudEvent, Header, Recorded};
use crate::id::{EventId, GatewayId, IncarnationId, NodeId, RunId};
use crate::lineage::Lineage;
use crate::rule::{Admission, RuleKey};
use crate::spending::Budget;
use crate::subject::{Class, Pool};
use crate::task::StepId;
use crate::task::plan::{Ending, Position};
use crate::tenant::Tenant;

/// The time of all sample events.
pub const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// A root.
pub fn root() -> RunId {
    RunId::root_of(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001))
}

/// Another root.
pub fn other_root() -> RunId {
    RunId::root_of(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0002))
}

/// A child of [`root`].
pub fn child() -> RunId {
    root().child(&Digest::of("call"))
}

pub fn image() -> Image {
    Image {
        config_digest: format!("sha256:{}", Digest::of("image")),
        content: ImageContent::Archive {
            archive: Digest::of("archive"),
            archive_size_bytes: 1_000,
        },
    }
}

/// A version of a capsule that may call nothing.
pub fn registration(name: &str, content: &str) -> Registration {
    Registration {
        name: name.parse().expect("a name"),
        title: None,
        description: None,
        aliases: Vec::new(),
        content: Digest::of(content),
        schema: Digest::of("schema"),
        agent: None,
        tools: None,
        workflow: None,
        image: image(),
        bases: Vec::new(),
        resources: Resources::default(),
        handoffs: Handoffs::Listed(Vec::new()),
        models: None,
        needs: Needs::default(),
        pool: Pool::any(),
        registered_by: "operator".into(),
    }
}

pub fn file(name: &str) -> FileEntry {
    FileEntry {
        name: name.parse().expect("a file name"),
        digest: Digest::of(name),
        size_bytes: 3,
    }
}

/// The launch of a root, due a day after [`NOW`].
pub fn launched() -> Launched {
    Launched {
        tenant: Tenant::default(),
        work: Work::Capsule {
            name: "survey".parse().expect("a name"),
            content: Digest::of("content"),
            image: image(),
            schema: Digest::of("schema"),
            handoffs: Handoffs::Listed(vec!["chart".into()]),
            models: None,
            workflow: None,
            needs: Needs::default(),
        },
        payload: Payload::Inline(json!({"table": "penguins.csv"})),
        files: vec![file("penguins.csv")],
        parent: None,
        lineage: Lineage {
            signatures: vec![Digest::of("signature")],
        },
        placement: Placement::new(Pool::any(), Class::Root),
        resources: Resources::default(),
        retries: Retries::default(),
        limits: Limits::default(),
        budget: Budget::default(),
        deadline: NOW + jiff::SignedDuration::from_hours(24),
        requested_by: "operator".into(),
        labels: BTreeMap::from([("team".into(), "birds".into())]),
        request: Digest::of("request"),
        admission: None,
        requeued_from: None,
        rerun: None,
        reuses: None,
        trace: None,
    }
}

/// The request for a root that waits for admission.
pub fn requested() -> Launched {
    let bucket = |rule: &str, key: &str| RuleKey {
        rule: rule.parse().expect("a name"),
        key: key.into(),
    };
    let admission = Admission {
        priority: 5,
        buckets: vec![bucket("teams", "birds"), bucket("all", "")],
        shared: Vec::new(),
    };
    Launched {
        admission: Some(Box::new(admission)),
        ..launched()
    }
}

/// The launch of a child.
pub fn launched_child() -> Launched {
    Launched {
        parent: Some(Parent {
            run: root(),
            attempt: 1,
            call_key: Digest::of("call"),
            event: Digest::of("the parent's lease"),
        }),
        placement: Placement::new(Pool::any(), Class::Child),
        requested_by: root().to_string(),
        ..launched()
    }
}

/// The first event of a child in a rerun, which reuses a recorded result.
pub fn reused() -> Launched {
    Launched {
        rerun: Some(Box::new(Rerun {
            tree: other_root(),
            of: Some(other_root().child(&Digest::of("call"))),
            recompute: Recompute::Nothing,
        })),
        reuses: Some(Reuses {
            run: other_root().child(&Digest::of("call")),
            hash: Digest::of("its result"),
        }),
        ..launched_child()
    }
}

/// The lease of a node by the `delivery`th delivery.
pub fn node_holder(node: u128, delivery: u64) -> Holder {
    Holder::Node {
        node: NodeId::new(Uuid::from_u128(node)),
        incarnation: IncarnationId::new(Uuid::from_u128(node + 100)),
        work: WorkPosition {
            queue_created_ms: 1_700_000_000_000,
            sequence: 7,
            delivery,
        },
        ack_subject: format!("$JS.ACK.WORK.any-root.{delivery}.7.7.0.0"),
        token_sha256: Digest::of(format!("token {node}")),
    }
}

pub fn gateway_holder() -> Holder {
    Holder::Gateway {
        gateway: GatewayId::new(Uuid::from_u128(9)),
    }
}

pub fn error(code: ErrorCode) -> RunError {
    RunError::new(code, "because")
}

/// A success by `attempt`.
pub fn ended(attempt: u32) -> Ended {
    Ended {
        output: Some(Payload::Inline(json!({"report": "report.pdf"}))),
        files: vec![file("report.pdf")],
        error: None,
        exit: Some(Exit {
            code: Some(0),
            signal: None,
        }),
        timings: Timings {
            leased_at: Some(NOW),
            started_at: Some(NOW),
            exited_at: Some(NOW),
            waiting_ms: 5,
        },
        usage: Usage {
            fetched_bytes: 0,
            input_bytes: 3,
            output_bytes: 3,
            calls: 1,
            models: None,
            egress: None,
        },
        ..Ended::without_start(attempt, Outcome::Succeeded, error(ErrorCode::Internal))
    }
}

/// A failure of the capsule, followed by a pause of one second.
pub fn step_ended(attempt: u32, number: u32) -> StepEnded {
    StepEnded {
        attempt,
        number,
        position: Position {
            step: StepId::parse("review").expect("an id"),
            iterations: vec![2],
        },
        ending: Ending::Failed,
        outputs: Some(Payload::Artifact {
            digest: Digest::of("outputs"),
            size_bytes: 40,
        }),
        snapshot: Some(Snapshot {
            digest: Digest::of("workspace"),
            size_bytes: 4_096,
        }),
        exit: Some(Exit {
            code: Some(1),
            signal: None,
        }),
        error: Some(error(ErrorCode::StepFailed)),
        started_at: Some(NOW),
        ended_at: NOW,
    }
}

pub fn failed(attempt: u32) -> AttemptFailed {
    AttemptFailed {
        attempt,
        kind: FailureKind::Capsule,
        outcome: Outcome::Failed,
        error: error(ErrorCode::CapsuleExit),
        exit: Some(Exit {
            code: Some(1),
            signal: None,
        }),
        logs: None,
        pause_ms: 1_000,
    }
}

/// The `delivery`th delivery, which node 1 begins on.
pub fn delivered(delivery: u64) -> Delivered {
    Delivered {
        node: NodeId::new(Uuid::from_u128(1)),
        work: WorkPosition {
            queue_created_ms: 1_700_000_000_000,
            sequence: 7,
            delivery,
        },
    }
}

/// One of every state event.
pub fn every_event() -> Vec<Event> {
    vec![
        Event::Launched(Box::new(launched())),
        Event::Requested(Box::new(requested())),
        Event::Admitted(Admitted {
            placement: launched().placement,
            memory_bytes: launched().resources.memory_bytes,
            cpu_millis: None,
        }),
        Event::AdmissionReturned(Returned { granted: 12 }),
        Event::Reused(Box::new(reused())),
        Event::Delivered(delivered(46)),
        Event::Leased(Lease {
            attempt: 1,
            holder: node_holder(1, 1),
        }),
        Event::AttemptLost(AttemptLost {
            attempt: 1,
            error: error(ErrorCode::NodeLost),
        }),
        Event::AttemptRefused(Refused {
            attempt: 1,
            node: NodeId::new(Uuid::from_u128(4)),
            error: error(ErrorCode::SecretMissing),
        }),
        Event::AttemptFailed(Box::new(failed(1))),
        Event::StepEnded(Box::new(step_ended(1, 1))),
        Event::CancelRequested(CancelRequested {
            requested_by: "operator".into(),
            reason: "no longer wanted".into(),
        }),
        Event::Ended(Box::new(ended(1))),
        Event::Sealed(Sealed {
            result: Digest::of("result"),
            tree: None,
            public_key: "00".repeat(32),
            signature: "00".repeat(64),
        }),
    ]
}

/// `events` as the log stores them: numbered from 1 and chained.
pub fn recorded(events: impl IntoIterator<Item = Event>) -> Vec<Recorded<Event>> {
    let mut previous = None;
    let record = |(index, event): (usize, Event)| {
        let sequence = index as u64 + 1;
        let header = Header {
            id: EventId::new(Uuid::from_u128(sequence.into())),
            source: "/test".into(),
            time: NOW,
        };
        let bytes = CloudEvent::new(header, root().to_string(), previous, event)
            .encode()
            .expect("a small event");
        let recorded = Recorded::decode(sequence, &bytes).expect("an event that was just written");
        previous = Some(recorded.hash);
        recorded
    };
    events.into_iter().enumerate().map(record).collect()
}

/// The root run after `events`.
pub fn run_of(events: impl IntoIterator<Item = Event>) -> Run {
    Run::replay(root(), recorded(events))
        .expect("a history that follows")
        .expect("a history that has begun")
}
