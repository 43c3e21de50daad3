//! A server, a broker on it, and events of runs: what all tests begin with.

use std::future::Future;
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::handoff::Lineage;
use aod_domain::id::{EventId, RunId};
use aod_domain::run::{CancelRequested, Event, Launched, Payload, Placement, Work};
use aod_domain::subject::{self, Class, Label};
use aod_jetstream::{Broker, Config, StreamLimits};
use aod_ports::event_log::{Append, EventLog, Guard};
use aod_testkit::{NatsConfig, NatsServer};
use jiff::Timestamp;
use uuid::Uuid;

/// Lease time of the tests' queue.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// Longest that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn config(server: &NatsServer) -> Config {
    Config {
        lease_seconds: u32::try_from(LEASE.as_secs()).unwrap(),
        ..Config::new(server.url(), "test")
    }
}

pub(crate) async fn start() -> (NatsServer, Broker) {
    let server = NatsServer::start(NatsConfig::default());
    let broker = connect(&server).await;
    (server, broker)
}

pub(crate) async fn connect(server: &NatsServer) -> Broker {
    Broker::connect(config(server))
        .await
        .expect("a broker on a fresh server")
}

/// Small enough to be filled by a test.
pub(crate) fn small() -> StreamLimits {
    StreamLimits {
        events_bytes_max: 64 * 1024,
        ..StreamLimits::default()
    }
}

/// Waits for the outcome of `future`, but not for ever.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("an outcome within the test's patience")
}

pub(crate) fn new_run() -> RunId {
    RunId::root_of(Uuid::now_v7())
}

pub(crate) fn new_id() -> String {
    EventId::new(Uuid::now_v7()).to_string()
}

/// A label of one test alone, so that its launches are its own.
pub(crate) fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn launched(label: &Label, class: Class) -> Event {
    let digest = Digest::of("test");
    Event::Launched(Box::new(Launched {
        work: Work::Build {
            name: "chart".parse().unwrap(),
            content: digest,
        },
        payload: Payload::Inline(serde_json::Value::Null),
        files: Vec::new(),
        parent: None,
        lineage: Lineage::default(),
        placement: Placement {
            label: label.clone(),
            class,
        },
        resources: aod_domain::capsule::Resources::default(),
        deadline: Timestamp::UNIX_EPOCH,
        requested_by: "test".into(),
        labels: std::collections::BTreeMap::new(),
        request: digest,
    }))
}

/// A launch; its bytes are its run's id.
pub(crate) fn launch(run: RunId, label: &Label, class: Class) -> Append {
    Append {
        subject: launched(label, class).subject(run),
        guard: Guard::Last {
            filter: subject::run_state(run),
            sequence: 0,
        },
        id: new_id(),
        bytes: run.to_string().into(),
    }
}

/// A state event of `run` that follows `after`.
pub(crate) fn state_event(run: RunId, after: u64, bytes: &str) -> Append {
    let event = Event::CancelRequested(CancelRequested {
        requested_by: String::new(),
        reason: String::new(),
    });
    Append {
        subject: event.subject(run),
        guard: Guard::Last {
            filter: subject::run_state(run),
            sequence: after,
        },
        id: new_id(),
        bytes: bytes.to_owned().into(),
    }
}

/// Appends `count` events to a new run and answers with their sequences.
pub(crate) async fn grow(log: &impl EventLog, run: RunId, count: u32) -> Vec<u64> {
    let mut sequences = Vec::new();
    for number in 0..count {
        let after = sequences.last().copied().unwrap_or(0);
        sequences.push(
            log.append(state_event(run, after, &number.to_string()))
                .await
                .unwrap(),
        );
    }
    sequences
}
