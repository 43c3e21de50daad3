//! Following the log, also across the death of the server.

use aod_domain::subject;
use aod_ports::event_log::{EventLog as _, From, Told};
use futures::{Stream, StreamExt as _};

use crate::support::{grow, new_run, soon, start, state_event};

/// Reads events until `count` were told; whether the connection was lost meanwhile.
async fn take(told: &mut (impl Stream<Item = Told> + Unpin), count: usize) -> (Vec<u64>, bool) {
    let (mut sequences, mut was_lost) = (Vec::new(), false);
    while sequences.len() < count {
        match soon(told.next()).await.expect("a stream without end") {
            Told::Event(event) => sequences.push(event.sequence),
            Told::Reconnected => was_lost = true,
        }
    }
    (sequences, was_lost)
}

#[tokio::test]
async fn it_begins_where_it_is_told() {
    let (_server, broker) = start().await;
    let (log, run) = (broker.event_log(), new_run());
    let old = grow(&log, run, 3).await;
    let mut all = log.follow(subject::ALL, From::After(0)).await.unwrap();
    let mut rest = log.follow(subject::ALL, From::After(old[1])).await.unwrap();
    let mut new = log.follow(subject::ALL, From::Now).await.unwrap();
    let mut others = log
        .follow(&subject::run_all(new_run()), From::Now)
        .await
        .unwrap();
    let fresh = log.append(state_event(run, old[2], "new")).await.unwrap();
    assert_eq!(
        take(&mut all, 4).await,
        ([&old[..], &[fresh]].concat(), false)
    );
    assert_eq!(take(&mut rest, 2).await, (vec![old[2], fresh], false));
    assert_eq!(take(&mut new, 1).await, (vec![fresh], false));
    assert!(futures::FutureExt::now_or_never(others.next()).is_none());
}

#[tokio::test]
async fn nothing_is_missed_or_told_twice_when_the_server_dies() {
    const BEFORE: u32 = 50;
    const AFTER: u32 = 50;
    let (mut server, broker) = start().await;
    let log = broker.event_log();
    let mut told = log.follow(subject::ALL, From::After(0)).await.unwrap();
    let mut untouched = log.follow(subject::CAPSULES, From::Now).await.unwrap();
    let before = grow(&log, new_run(), BEFORE).await;
    // Some are taken before, some lie in the client, some in the server.
    let (mut seen, _) = take(&mut told, 20).await;
    let server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    let after = grow(&log, new_run(), AFTER).await;
    let expected = [before, after].concat();
    let (rest, was_lost) = take(&mut told, expected.len() - seen.len()).await;
    seen.extend(rest);
    assert_eq!(seen, expected);
    assert!(was_lost, "whoever waits must be told to look");
    // A stream that had nothing to tell before tells that too.
    assert_eq!(soon(untouched.next()).await, Some(Told::Reconnected));
    drop(server);
}

#[tokio::test]
async fn a_follower_that_pauses_misses_nothing() {
    let (_server, broker) = start().await;
    let (log, run) = (broker.event_log(), new_run());
    let mut told = log.follow(subject::ALL, From::Now).await.unwrap();
    let sequences = grow(&log, run, 500).await;
    assert_eq!(take(&mut told, 500).await, (sequences, false));
}
