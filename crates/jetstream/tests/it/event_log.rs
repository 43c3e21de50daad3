//! Appends to a full log, and to servers that die.

use aod_domain::subject;
use aod_jetstream::{Broker, Config};
use aod_ports::event_log::{AppendError, EventLog as _};
use aod_testkit::events::{grow, new_run, soon, state_event};
use aod_testkit::{NatsConfig, NatsServer};

use crate::support::{config, small, start};

#[tokio::test]
async fn full_log_rejects_appends_and_keeps_events() {
    let server = NatsServer::start(NatsConfig::default());
    let broker = Broker::connect(Config {
        limits: Some(small()),
        ..config(&server)
    })
    .await
    .unwrap();
    let (log, run) = (broker.event_log(), new_run());
    let (mut last, payload) = (0, "x".repeat(8_000));
    let error = loop {
        match log.append(state_event(run, last, &payload)).await {
            Ok(sequence) => last = sequence,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AppendError::Full), "{error:?}");
    let fill = log.fill().await.unwrap();
    assert_eq!(
        (fill.last_sequence, fill.bytes_max),
        (last, small().events_bytes_max)
    );
    assert!(fill.bytes > fill.bytes_max / 2, "{fill:?}");
    assert_eq!(
        log.read(&subject::run_all(run), 0, 1_000)
            .await
            .unwrap()
            .len() as u64,
        last
    );
}

#[tokio::test]
async fn append_continues_after_restart_of_server() {
    let (mut server, broker) = start().await;
    let (log, run) = (broker.event_log(), new_run());
    let first = log.append(state_event(run, 0, "before")).await.unwrap();
    server.kill();
    let append = tokio::spawn({
        let log = log.clone();
        async move { log.append(state_event(run, first, "meanwhile")).await }
    });
    let _server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    let second = soon(append).await.unwrap().unwrap();
    assert_eq!(second, first + 1);
}

#[tokio::test]
async fn appends_during_death_of_server_are_stored_once() {
    const WRITERS: u32 = 8;
    const EACH: u32 = 60;
    let (mut server, broker) = start().await;
    let log = broker.event_log();
    let runs: Vec<_> = (0..WRITERS).map(|_| new_run()).collect();
    let writers: Vec<_> = runs
        .iter()
        .map(|&run| {
            tokio::spawn({
                let log = log.clone();
                async move { grow(&log, run, EACH).await }
            })
        })
        .collect();
    let third = u64::from(WRITERS * EACH / 3);
    soon(async { while log.fill().await.unwrap().last_sequence < third {} }).await;
    let server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    for (writer, run) in writers.into_iter().zip(runs) {
        let confirmed = soon(writer).await.unwrap();
        let stored = log.read(&subject::run_all(run), 0, 1_000).await.unwrap();
        assert_eq!(
            stored
                .iter()
                .map(|event| event.sequence)
                .collect::<Vec<_>>(),
            confirmed
        );
    }
    drop(server);
}
