//! Conformance suite of event logs: guards, retried appends, reads, followers.

use std::sync::Arc;

use aod_domain::digest::Digest;
use aod_domain::subject;
use aod_ports::event_log::{Append, AppendError, EventLog, Followed, From, Guard};
use futures::future::join_all;
use futures::{FutureExt as _, Stream, StreamExt as _};

use crate::events::{grow, new_run, soon, state_event};

/// Runs the whole suite through two connections to one log, which may already hold other events.
pub async fn check_all(log: &Arc<dyn EventLog>, elsewhere: &Arc<dyn EventLog>) {
    a_run_is_created_once(log).await;
    a_guard_covers_the_whole_run_and_no_other(log).await;
    an_append_never_conflicts_with_itself(log, elsewhere).await;
    an_unguarded_append_is_stored_once(log).await;
    writers_on_one_run_all_get_on(&[log.clone(), elsewhere.clone()]).await;
    a_long_run_is_read_in_pages(log).await;
    wildcards_stand_for_tokens(log).await;
    follower_begins_at_its_position(log, elsewhere).await;
    a_follower_that_pauses_misses_nothing(log, elsewhere).await;
    the_fill_counts(log).await;
}

fn is_conflict(answer: &Result<u64, AppendError>) -> bool {
    matches!(answer, Err(AppendError::Conflict { .. }))
}

async fn a_run_is_created_once(log: &Arc<dyn EventLog>) {
    let run = new_run();
    let first = log.append(state_event(run, 0, "first")).await;
    let first = first.expect("the first append");
    let second = log.append(state_event(run, 0, "second")).await;
    assert!(is_conflict(&second), "{second:?}");
    let stored = log.read(&subject::run_all(run), 0, 10).await;
    let stored = stored.expect("a read");
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert_eq!(stored[0].sequence, first);
    assert_eq!(stored[0].bytes, "first");
}

async fn a_guard_covers_the_whole_run_and_no_other(log: &Arc<dyn EventLog>) {
    let (run, other) = (new_run(), new_run());
    let first = grow(&**log, run, 1).await[0];
    grow(&**log, other, 1).await;
    let second = log.append(state_event(run, first, "2")).await;
    let second = second.expect("the next append");
    let stale = log.append(state_event(run, first, "stale")).await;
    assert!(is_conflict(&stale), "{stale:?}");
    let third = log.append(state_event(run, second, "3")).await;
    assert!(third.expect("the one after") > second);
}

async fn an_append_never_conflicts_with_itself(
    log: &Arc<dyn EventLog>,
    elsewhere: &Arc<dyn EventLog>,
) {
    let run = new_run();
    let create = state_event(run, 0, "1");
    let first = log.append(create.clone()).await.expect("an append");
    let again = log.append(create.clone()).await;
    assert_eq!(again.expect("the same"), first, "a confirmation was lost");

    let second = log.append(state_event(run, first, "2")).await;
    let second = second.expect("the next append");
    let again = log.append(create.clone()).await;
    assert_eq!(again.expect("the same"), first, "others went on meanwhile");
    let again = elsewhere.append(create).await;
    assert_eq!(again.expect("the same"), first, "from another program");

    let stored = log.read(&subject::run_all(run), 0, 10).await;
    let stored = stored.expect("a read");
    let sequences: Vec<u64> = stored.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, [first, second]);
}

async fn an_unguarded_append_is_stored_once(log: &Arc<dyn EventLog>) {
    let note = Append {
        guard: Guard::None,
        ..state_event(new_run(), 0, "note")
    };
    let sequence = log.append(note.clone()).await.expect("an append");
    assert_eq!(log.append(note).await.expect("the same"), sequence);
}

async fn writers_on_one_run_all_get_on(logs: &[Arc<dyn EventLog>]) {
    const WRITERS: usize = 8;
    const EACH: usize = 10;
    let run = new_run();
    let writers = logs.iter().cycle().take(WRITERS).map(|log| {
        let log = log.clone();
        soon(async move {
            let mut stored = 0;
            while stored < EACH {
                let last = log.read_last(&subject::run_state(run)).await;
                let last = last.expect("a read").map_or(0, |event| event.sequence);
                match log.append(state_event(run, last, "x")).await {
                    Ok(_) => stored += 1,
                    Err(AppendError::Conflict { .. }) => (),
                    Err(error) => panic!("{error:?}"),
                }
            }
        })
    });
    join_all(writers).await;
    let stored = logs[0].read(&subject::run_state(run), 0, 1_000).await;
    assert_eq!(stored.expect("a read").len(), WRITERS * EACH);
}

async fn a_long_run_is_read_in_pages(log: &Arc<dyn EventLog>) {
    const EVENTS: u32 = 300;
    let run = new_run();
    grow(&**log, new_run(), 3).await;
    let sequences = grow(&**log, run, EVENTS).await;
    let filter = &subject::run_all(run);
    let read = async |after, limit| {
        let stored = log.read(filter, after, limit).await.expect("a read");
        let sequences = stored.iter().map(|event| event.sequence);
        sequences.collect::<Vec<u64>>()
    };
    assert_eq!(read(0, 10_000).await, sequences);
    assert_eq!(read(0, 260).await, sequences[..260]);
    assert_eq!(read(sequences[269], 10_000).await, sequences[270..]);
    assert!(read(sequences[299], 10_000).await.is_empty());
    assert!(read(0, 0).await.is_empty());
    let last = log.read_last(filter).await.expect("a read");
    assert_eq!(last.expect("an event").sequence, sequences[299]);

    let nobody = &subject::run_all(new_run());
    assert_eq!(log.read_last(nobody).await.expect("a read"), None);
    assert_eq!(log.read(nobody, 0, 10).await.expect("a read"), []);
}

async fn wildcards_stand_for_tokens(log: &Arc<dyn EventLog>) {
    let (run, other) = (new_run(), new_run());
    let child = run.child(&Digest::of("call"));
    let mut sequences = Vec::new();
    for run in [run, child, other] {
        sequences.extend(grow(&**log, run, 2).await);
    }
    let read = async |filter: &str| {
        let after = sequences[0] - 1;
        let stored = log.read(filter, after, 100).await.expect("a read");
        let sequences = stored.iter().map(|event| event.sequence);
        sequences.collect::<Vec<u64>>()
    };
    assert_eq!(read(subject::ALL).await, sequences);
    assert_eq!(read("ev.*.run.*.*.s.cancel_requested").await, sequences);
    assert_eq!(read("ev.*.run.*.*.*.*").await, sequences);
    assert_eq!(read(&subject::tree(run)).await, sequences[..4]);
    let below = format!("ev.*.run.*.{}.s.>", child.token());
    assert_eq!(read(&below).await, sequences[2..4]);
    assert!(read("ev.*.run.*.*.s.ended").await.is_empty());
    assert!(read("ev.*.run.*").await.is_empty());
}

async fn follower_begins_at_its_position(log: &Arc<dyn EventLog>, elsewhere: &Arc<dyn EventLog>) {
    let run = new_run();
    let old = grow(&**log, run, 3).await;
    let filter = &subject::run_all(run);
    let follow = async |filter: &str, from| {
        let followed = elsewhere.follow(filter, from).await;
        followed.expect("a stream")
    };
    let mut all = follow(filter, From::After(0)).await;
    let mut rest = follow(filter, From::After(old[1])).await;
    let mut new = follow(filter, From::Now).await;
    let mut others = follow(&subject::run_all(new_run()), From::Now).await;
    let fresh = log.append(state_event(run, old[2], "new")).await;
    let fresh = fresh.expect("an append");
    assert_eq!(take(&mut all, 4).await, [&old[..], &[fresh]].concat());
    assert_eq!(take(&mut rest, 2).await, [old[2], fresh]);
    assert_eq!(take(&mut new, 1).await, [fresh]);
    assert!(others.next().now_or_never().is_none());
}

async fn a_follower_that_pauses_misses_nothing(
    log: &Arc<dyn EventLog>,
    elsewhere: &Arc<dyn EventLog>,
) {
    let run = new_run();
    let followed = elsewhere.follow(&subject::run_all(run), From::Now).await;
    let mut followed = followed.expect("a stream");
    let sequences = grow(&**log, run, 300).await;
    assert_eq!(take(&mut followed, 300).await, sequences);
}

/// The next `count` events of a stream whose connection is stable.
async fn take(followed: &mut (impl Stream<Item = Followed> + Unpin), count: usize) -> Vec<u64> {
    let mut sequences = Vec::new();
    while sequences.len() < count {
        match soon(followed.next()).await.expect("a stream without end") {
            Followed::Event(event) => sequences.push(event.sequence),
            Followed::Reconnected => panic!("the connection was not lost"),
        }
    }
    sequences
}

async fn the_fill_counts(log: &Arc<dyn EventLog>) {
    let before = log.fill().await.expect("an answer");
    let sequence = grow(&**log, new_run(), 1).await[0];
    let after = log.fill().await.expect("an answer");
    assert_eq!(after.last_sequence, sequence);
    assert!(before.last_sequence < sequence);
    assert!(before.bytes < after.bytes && after.bytes < after.bytes_max);
}
