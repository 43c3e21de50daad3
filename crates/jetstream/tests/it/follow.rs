//! Subscriptions across the death of the server.

use aod_domain::subject;
use aod_ports::event_log::{EventLog as _, Followed, From};
use futures::{Stream, StreamExt as _};

use aod_testkit::events::{grow, new_run, soon};

use crate::support::start;

/// Reads `count` events; returns whether the connection was lost meanwhile.
async fn take(
    followed: &mut (impl Stream<Item = Followed> + Unpin),
    count: usize,
) -> (Vec<u64>, bool) {
    let (mut sequences, mut was_lost) = (Vec::new(), false);
    while sequences.len() < count {
        match soon(followed.next()).await.expect("a stream without end") {
            Followed::Event(event) => sequences.push(event.sequence),
            Followed::Reconnected => was_lost = true,
        }
    }
    (sequences, was_lost)
}

#[tokio::test]
async fn subscription_survives_death_of_server_without_gaps_or_repeats() {
    const BEFORE: u32 = 50;
    const AFTER: u32 = 50;
    let (mut server, broker) = start().await;
    let log = broker.event_log();
    let mut followed = log.follow(subject::ALL, From::After(0)).await.unwrap();
    let mut untouched = log.follow(subject::CAPSULES, From::Now).await.unwrap();
    let before = grow(&log, new_run(), BEFORE).await;
    // Some events are already read, some are in the client, some in the server.
    let (mut seen, _) = take(&mut followed, 20).await;
    let server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    let after = grow(&log, new_run(), AFTER).await;
    let expected = [before, after].concat();
    let (rest, was_lost) = take(&mut followed, expected.len() - seen.len()).await;
    seen.extend(rest);
    assert_eq!(seen, expected);
    assert!(was_lost, "subscribers must be followed to check");
    // A subscription without earlier events reports the reconnect too.
    assert_eq!(soon(untouched.next()).await, Some(Followed::Reconnected));
    drop(server);
}
