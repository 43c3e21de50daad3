//! The power of the server's machine is cut while runs are made.
//!
//! With the configuration that hosts start with nothing that was confirmed is lost. The same without
//! its `sync_interval: always` loses: so the cut takes away what was not synced, and the test sees it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aod_domain::id::RunId;
use aod_domain::subject::{Class, Label, Subject};
use aod_jetstream::{Broker, Config, Credentials, Durability};
use aod_ports::event_log::{EventLog, StoredEvent};
use aod_ports::work_queue::WorkQueue as _;
use aod_testkit::Machine;

use crate::witness::{Witness, check_whole, missing, read_all};

/// The configuration of the broker that compose files start.
const CONFIGURATION: &str = include_str!("../../../../deploy/nats.conf");

/// The line that the other half of the test is without.
const SYNC: &str = "  sync_interval: always\n";

/// What `aod credentials` would write.
const USERS: &str = "authorization { users = [ { user: aod, password: secret } ] }\n";

/// Appends that are confirmed before each cut at the least.
const CONFIRMED_BEFORE: usize = 600;

/// How long they may take, on an emulated processor.
const PATIENCE: Duration = Duration::from_secs(120);

/// Launches that are taken at once.
const PULLED: usize = 100;

/// How often the power is cut with every write synced.
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

/// Makes runs until enough is confirmed, and cuts the power while more are under way. Answers with
/// what was confirmed.
async fn cut_under_load(machine: &mut Machine, broker: &Broker) -> Vec<StoredEvent> {
    let witness = Witness::new(broker.event_log());
    let mut writers = witness.load();
    witness.wait_for(CONFIRMED_BEFORE, PATIENCE).await;
    machine.cut_power();
    writers.shutdown().await;
    witness.confirmed()
}

/// Takes launches out of the queue until each of the log's was there: none was ever taken, and the
/// queue, which is not synced, is made of the log.
async fn check_queue(broker: &Broker, stored: &[StoredEvent]) {
    let queue = broker.work_queue();
    let label = Label::any();
    // As gateways do: the queue itself may be gone.
    queue.begin_at(1).await.unwrap();
    queue.ensure(&label).await.unwrap();
    let launches = stored
        .iter()
        .filter(|event| event.subject.contains(".s.launch."));
    let mut waited_for: BTreeSet<RunId> = launches
        .map(|event| Subject::run_of(&event.subject).unwrap())
        .collect();
    assert!(!waited_for.is_empty());
    let taken = async {
        while !waited_for.is_empty() {
            for delivery in queue
                .pull(&label, Class::Root, PULLED, PATIENCE)
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
async fn a_power_loss_takes_nothing_that_was_confirmed_unless_syncing_is_off() {
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
    assert!(!missing.is_empty(), "nothing is shown if nothing is lost");
}
