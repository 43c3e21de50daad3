//! Events of runs, for logs and queues under test.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use aod_domain::capsule::Resources;
use aod_domain::digest::Digest;
use aod_domain::handoff::Lineage;
use aod_domain::id::{EventId, RunId};
use aod_domain::run::{
    CancelRequested, Event, Launched, Limits, Payload, Placement, Retries, Work,
};
use aod_domain::subject::{self, Class, Pool};
use aod_domain::tenant::Tenant;
use aod_ports::event_log::{Append, EventLog, Guard};
use jiff::Timestamp;
use uuid::Uuid;

/// Maximum wait of a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for the outcome of `future` up to a limit.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("an outcome within the test's patience")
}

/// A root that no other test has.
pub fn new_run() -> RunId {
    RunId::root_of(Uuid::now_v7())
}

/// The id of a new event.
pub fn new_id() -> String {
    EventId::new(Uuid::now_v7()).to_string()
}

/// A pool of one test, to separate its launches from all others.
pub fn pool(text: &str) -> Pool {
    text.parse().expect("a pool")
}

fn launched(pool: &Pool, class: Class) -> Event {
    let digest = Digest::of("test");
    Event::Launched(Box::new(Launched {
        tenant: Tenant::default(),
        work: Work::Build {
            name: "chart".parse().expect("a name"),
            content: digest,
            updates_bases: false,
        },
        payload: Payload::Inline(serde_json::Value::Null),
        files: Vec::new(),
        parent: None,
        lineage: Lineage::default(),
        placement: Placement::new(pool.clone(), class),
        resources: Resources::default(),
        retries: Retries::default(),
        limits: Limits::default(),
        deadline: Timestamp::UNIX_EPOCH,
        requested_by: "test".into(),
        labels: BTreeMap::new(),
        request: digest,
        budget: aod_domain::spending::Budget::default(),
        admission: None,
        requeued_from: None,
        rerun: None,
        reuses: None,
        trace: None,
    }))
}

/// A launch; its content is the id of its run.
pub fn launch(run: RunId, pool: &Pool, class: Class) -> Append {
    Append {
        subject: launched(pool, class).subject(&Tenant::default(), run),
        guard: Guard::Last {
            filter: subject::run_state(run),
            sequence: 0,
        },
        id: new_id(),
        bytes: run.to_string().into(),
    }
}

/// A state event of `run` after `after`.
pub fn state_event(run: RunId, after: u64, bytes: &str) -> Append {
    let event = Event::CancelRequested(CancelRequested {
        requested_by: String::new(),
        reason: String::new(),
    });
    Append {
        subject: event.subject(&Tenant::default(), run),
        guard: Guard::Last {
            filter: subject::run_state(run),
            sequence: after,
        },
        id: new_id(),
        bytes: bytes.to_owned().into(),
    }
}

/// Appends `count` events to a new run and returns their sequences.
pub async fn grow(log: &dyn EventLog, run: RunId, count: u32) -> Vec<u64> {
    let mut sequences = Vec::new();
    for number in 0..count {
        let after = sequences.last().copied().unwrap_or(0);
        sequences.push(
            log.append(state_event(run, after, &number.to_string()))
                .await
                .expect("an append"),
        );
    }
    sequences
}
