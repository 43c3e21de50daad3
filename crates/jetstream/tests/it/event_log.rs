//! Appends, guards and reads.

use aod_domain::subject;
use aod_jetstream::{Broker, Config};
use aod_ports::event_log::{Append, AppendError, EventLog as _, Guard};
use aod_testkit::{NatsConfig, NatsServer};

use crate::support::{config, connect, grow, new_run, small, soon, start, state_event};

#[tokio::test]
async fn a_run_is_created_once() {
    let (_server, broker) = start().await;
    let (log, run) = (broker.event_log(), new_run());
    log.append(state_event(run, 0, "first")).await.unwrap();
    let error = log.append(state_event(run, 0, "second")).await.unwrap_err();
    assert!(matches!(error, AppendError::Conflict { .. }), "{error:?}");
    let stored = log.read(&subject::run_all(run), 0, 10).await.unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].bytes, "first");
}

#[tokio::test]
async fn a_guard_covers_the_whole_run_and_no_other() {
    let (_server, broker) = start().await;
    let (log, run, other) = (broker.event_log(), new_run(), new_run());
    let first = log.append(state_event(run, 0, "1")).await.unwrap();
    log.append(state_event(other, 0, "1")).await.unwrap();
    let second = log.append(state_event(run, first, "2")).await.unwrap();
    let stale = log
        .append(state_event(run, first, "stale"))
        .await
        .unwrap_err();
    assert!(matches!(stale, AppendError::Conflict { .. }), "{stale:?}");
    log.append(state_event(run, second, "3")).await.unwrap();
}

#[tokio::test]
async fn an_append_never_conflicts_with_itself() {
    let (server, broker) = start().await;
    let (log, run) = (broker.event_log(), new_run());
    let create = state_event(run, 0, "1");
    let first = log.append(create.clone()).await.unwrap();
    assert_eq!(
        log.append(create.clone()).await.unwrap(),
        first,
        "a confirmation was lost"
    );

    let second = log.append(state_event(run, first, "2")).await.unwrap();
    assert_eq!(
        log.append(create.clone()).await.unwrap(),
        first,
        "and others went on meanwhile"
    );

    let elsewhere = connect(&server).await.event_log();
    assert_eq!(
        elsewhere.append(create).await.unwrap(),
        first,
        "and from another program"
    );
    let stored = log.read(&subject::run_all(run), 0, 10).await.unwrap();
    assert_eq!(
        stored
            .iter()
            .map(|event| event.sequence)
            .collect::<Vec<_>>(),
        [first, second]
    );
}

#[tokio::test]
async fn an_unguarded_append_is_stored_once() {
    let (_server, broker) = start().await;
    let (log, run) = (broker.event_log(), new_run());
    let note = Append {
        guard: Guard::None,
        ..state_event(run, 0, "note")
    };
    let sequence = log.append(note.clone()).await.unwrap();
    assert_eq!(log.append(note).await.unwrap(), sequence);
}

#[tokio::test]
async fn eight_writers_on_one_run_all_get_on() {
    const WRITERS: u64 = 8;
    const EACH: u64 = 10;
    let (_server, broker) = start().await;
    let (log, run) = (broker.event_log(), new_run());
    let filter = subject::run_state(run);
    let writers = (0..WRITERS).map(|_| {
        let (log, filter) = (log.clone(), filter.clone());
        tokio::spawn(async move {
            let mut stored = 0;
            while stored < EACH {
                let last = log
                    .read_last(&filter)
                    .await
                    .unwrap()
                    .map_or(0, |event| event.sequence);
                match log.append(state_event(run, last, "x")).await {
                    Ok(_) => stored += 1,
                    Err(AppendError::Conflict { .. }) => (),
                    Err(error) => panic!("{error:?}"),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        soon(writer).await.unwrap();
    }
    let stored = log.read(&filter, 0, 1_000).await.unwrap();
    assert_eq!(stored.len() as u64, WRITERS * EACH);
}

#[tokio::test]
async fn a_long_run_is_read_in_pages() {
    const EVENTS: u32 = 700;
    let (_server, broker) = start().await;
    let (log, run) = (broker.event_log(), new_run());
    grow(&log, new_run(), 3).await;
    let sequences = grow(&log, run, EVENTS).await;
    let filter = subject::run_all(run);
    let read = |after, limit| {
        let (log, filter) = (log.clone(), filter.clone());
        async move {
            let stored = log.read(&filter, after, limit).await.unwrap();
            stored
                .iter()
                .map(|event| event.sequence)
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(read(0, 10_000).await, sequences);
    assert_eq!(read(0, 300).await, sequences[..300]);
    assert_eq!(read(sequences[599], 10_000).await, sequences[600..]);
    assert!(read(sequences[699], 10_000).await.is_empty());
    assert!(read(0, 0).await.is_empty());
    let last = log.read_last(&filter).await.unwrap().unwrap();
    assert_eq!(last.sequence, sequences[699]);
    assert_eq!(
        log.read_last(&subject::run_all(new_run())).await.unwrap(),
        None
    );
    assert_eq!(
        log.read(&subject::run_all(new_run()), 0, 10).await.unwrap(),
        []
    );
}

#[tokio::test]
async fn a_full_log_says_so_and_keeps_what_it_has() {
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
async fn an_append_outlives_the_server() {
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
async fn appends_under_way_when_the_server_dies_are_stored_once() {
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
