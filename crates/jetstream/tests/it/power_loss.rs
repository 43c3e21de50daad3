//! Power failures of the server's machine under load.
//!
//! With the default configuration of hosts, no confirmed event is lost. Without its
//! `sync_interval: always` events are lost, which proves that the test detects unsynced writes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aod_domain::id::RunId;
use aod_domain::subject::{Class, Pool, Subject};
use aod_jetstream::{Broker, Config, Credentials, Durability};
use aod_ports::event_log::{EventLog, StoredEvent};
use aod_ports::work_queue::WorkQueue as _;
use aod_testkit::Machine;

use crate::witness::{Witness, check_whole, missing, read_all};

/// The configuration of the broker that compose files start.
const CONFIGURATION: &str = include_str!("../../../../deploy/nats.conf");

/// The line that the second half of the test removes.
const SYNC: &str = "  sync_interval: always\n";

/// Users as `aod credentials` writes them.
const USERS: &str = "authorization { users = [ { user: aod, password: secret } ] }\n";

/// Minimum number of confirmed appends before each cut.
const CONFIRMED_BEFORE: usize = 600;

/// Maximum time for these appends, on an emulated processor.
const PATIENCE: Duration = Duration::from_secs(120);

/// Launches of one pull.
const PULLED: usize = 100;

/// Number of cuts with every write synced.
const CUTS: usize = 2;

async fn start(machine: &mut Machine, configuration: &str) -> Broker {
    machine.start(&[
        ("nats.conf", configuration),
        ("secrets/nats-users.conf", USERS),
    ]);
    let config = Config {
        credentials: Credentials::UserPassword {
            user: "aod".into(),
            password: "secret".into(),
        },
        monitoring_url: Some(machine.monitoring_url()),
        ..Config::new(machine.url(), "test")
    };
    Broker::connect(config).await.unwrap()
}

/// Makes runs until enough appends are confirmed, and cuts the power during further runs. Returns the
/// confirmed events.
async fn cut_under_load(machine: &mut Machine, broker: &Broker) -> Vec<StoredEvent> {
    let witness = Witness::new(broker.event_log());
    let mut writers = witness.load();
    witness.wait_for(CONFIRMED_BEFORE, PATIENCE).await;
    machine.cut_power();
    writers.shutdown().await;
    witness.confirmed()
}

/// Pulls launches until each launch of the log has arrived: none was taken before, and the queue, which is
/// not synced, is rebuilt from the log.
async fn check_queue(broker: &Broker, stored: &[StoredEvent]) {
    let queue = broker.work_queue();
    let pool = Pool::any();
    // As gateways do: the queue itself may be lost.
    queue.begin_at(1).await.unwrap();
    queue.ensure(&pool).await.unwrap();
    let launches = stored
        .iter()
        .filter(|event| event.subject.contains(".s.launched."));
    let mut waited_for: BTreeSet<RunId> = launches
        .map(|event| Subject::run_of(&event.subject).unwrap())
        .collect();
    assert!(!waited_for.is_empty());
    let taken = async {
        while !waited_for.is_empty() {
            for delivery in queue
                .pull(&pool, Class::Root, PULLED, PATIENCE)
                .await
                .unwrap()
            {
                waited_for.remove(&delivery.run);
                queue.acknowledge(&delivery.ack_subject).await.unwrap();
            }
        }
    };
    let taken = tokio::time::timeout(PATIENCE, taken).await;
    assert!(taken.is_ok(), "not in the queue: {waited_for:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn power_failure_loses_confirmed_events_only_without_sync() {
    let began = Instant::now();
    let mut machine = Machine::with_empty_disk();
    let mut broker = start(&mut machine, CONFIGURATION).await;
    assert_eq!(broker.durability(), Durability::Synced);
    let mut confirmed = Vec::new();
    for cut in 1..=CUTS {
        confirmed.extend(cut_under_load(&mut machine, &broker).await);
        broker = start(&mut machine, CONFIGURATION).await;
        let log: Arc<dyn EventLog> = Arc::new(broker.event_log());
        let stored = read_all(&*log).await;
        let missing = missing(&confirmed, &stored);
        eprintln!(
            "cut {cut}, synced: {} confirmed, {} missing, {:?}",
            confirmed.len(),
            missing.len(),
            began.elapsed()
        );
        assert!(missing.is_empty(), "{missing:?}");
        check_whole(&log, &stored).await;
        if cut == CUTS {
            check_queue(&broker, &stored).await;
        }
    }

    let unsynced = CONFIGURATION.replace(SYNC, "");
    assert_ne!(unsynced, CONFIGURATION);
    let broker = start(&mut machine, &unsynced).await;
    assert_eq!(broker.durability(), Durability::Unsynced);
    let confirmed = cut_under_load(&mut machine, &broker).await;
    let broker = start(&mut machine, &unsynced).await;
    let stored = read_all(&broker.event_log()).await;
    let missing = missing(&confirmed, &stored);
    eprintln!(
        "the last cut, not synced: {} confirmed, {} missing, {:?}",
        confirmed.len(),
        missing.len(),
        began.elapsed()
    );
    assert!(!missing.is_empty(), "the cut lost no event");
}
