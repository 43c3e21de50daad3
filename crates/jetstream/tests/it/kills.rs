//! Repeated kills of the server under load.

use std::sync::Arc;
use std::time::Duration;

use aod_ports::event_log::EventLog;
use aod_testkit::{NatsConfig, NatsServer};

use crate::support::connect;
use crate::witness::{Witness, check_whole, missing, read_all};

/// Number of kills.
const KILLS: usize = 20;

/// Minimum number of confirmed appends between two kills.
const CONFIRMED_BETWEEN: usize = 200;

/// Maximum time for these appends: the writers wait for the server up to half a second at a time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Kills a server with this `sync_interval`: every append is confirmed in the end, and the log contains
/// exactly the confirmed events.
async fn check(sync_interval: &str) {
    let mut server = NatsServer::start(NatsConfig {
        sync_interval: sync_interval.to_owned(),
        ..NatsConfig::default()
    });
    let broker = connect(&server).await;
    let witness = Witness::new(broker.event_log());
    let writers = witness.load();
    for kill in 0..KILLS {
        let before = witness.confirmed().len();
        witness.wait_for(before + CONFIRMED_BETWEEN, PATIENCE).await;
        eprintln!("kill {}: {} confirmed", kill + 1, witness.confirmed().len());
        server = tokio::task::spawn_blocking(move || {
            server.restart();
            server
        })
        .await
        .unwrap();
    }
    let before = witness.confirmed().len();
    witness.wait_for(before + CONFIRMED_BETWEEN, PATIENCE).await;
    witness.enough();
    for ended in writers.join_all().await {
        ended.unwrap();
    }
    // A new connection to a restarted server reads the log.
    server.restart();
    let broker = connect(&server).await;
    let log: Arc<dyn EventLog> = Arc::new(broker.event_log());
    let (confirmed, stored) = (witness.confirmed(), read_all(&*log).await);
    assert!(missing(&confirmed, &stored).is_empty());
    assert_eq!(stored.len(), confirmed.len());
    check_whole(&log, &stored).await;
    eprintln!(
        "sync_interval {sync_interval}: {} events through {KILLS} kills, all present, none twice",
        stored.len()
    );
}

#[tokio::test]
async fn twenty_kills_under_load_lose_nothing() {
    check("always").await;
}

#[tokio::test]
async fn twenty_kills_under_load_lose_nothing_without_sync() {
    check("2m").await;
}
