//! Following the log across the death of the server.

use aod_domain::subject;
use aod_ports::event_log::{EventLog as _, From, Told};
use futures::{Stream, StreamExt as _};

use aod_testkit::events::{grow, new_run, soon};

use crate::support::start;

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
