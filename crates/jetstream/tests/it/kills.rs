//! The server killed again and again while runs are made.

use std::sync::Arc;
use std::time::Duration;

use aod_ports::event_log::EventLog;
use aod_testkit::{NatsConfig, NatsServer};

use crate::support::connect;
use crate::witness::{Witness, check_whole, missing, read_all};

/// How often the server is killed.
const KILLS: usize = 20;

/// Appends that are confirmed between two kills at the least.
const CONFIRMED_BETWEEN: usize = 200;

/// How long they may take: the writers wait for the server up to half a second at a time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Kills a server that syncs as `sync_interval` says: everything is confirmed in the end, and the
/// log is exactly that.
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
    // Nobody who wrote then reads now: what is in the log is told by a server that has just begun.
    server.restart();
    let broker = connect(&server).await;
    let log: Arc<dyn EventLog> = Arc::new(broker.event_log());
    let (confirmed, stored) = (witness.confirmed(), read_all(&*log).await);
    assert!(missing(&confirmed, &stored).is_empty());
    assert_eq!(stored.len(), confirmed.len());
    check_whole(&log, &stored).await;
    eprintln!(
        "sync_interval {sync_interval}: {} events through {KILLS} kills, all there, none twice",
        stored.len()
    );
}

#[tokio::test]
async fn twenty_kills_under_load_lose_nothing() {
    check("always").await;
}

#[tokio::test]
async fn twenty_kills_under_load_lose_nothing_that_was_not_synced_either() {
    check("2m").await;
}
