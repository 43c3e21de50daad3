//! Conformance suite of feeds of ended runs.

use std::collections::BTreeSet;
use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::run::{Ended, Event, Outcome, RunError};
use aod_domain::tenant::Tenant;
use aod_ports::event_log::{Append, EventLog, Guard};
use aod_ports::feed::{Feed, Given};

use crate::events::{grow, new_id, new_run, soon};

/// Pause before an end is redelivered on request.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs the whole suite through two connections under one name, both of which have already requested ends.
pub async fn check_all(log: &dyn EventLog, feed: &dyn Feed, elsewhere: &dyn Feed) {
    only_ends_are_given(log, feed).await;
    each_end_is_given_to_one(log, feed, elsewhere).await;
    what_is_given_back_comes_again_and_what_is_done_does_not(log, feed, elsewhere).await;
}

/// Feeds with different names each receive all ends.
pub async fn check_names(log: &dyn EventLog, feed: &dyn Feed, other: &dyn Feed) {
    let run = new_run();
    end(log, run).await;
    for feed in [feed, other] {
        let given = given(feed, run).await;
        feed.done(&given).await.expect("it is taken");
    }
}

/// Stores the end of `run`.
async fn end(log: &dyn EventLog, run: RunId) {
    let error = RunError::new(ErrorCode::Internal, "");
    let ended = Ended::without_start(1, Outcome::Failed, error);
    let append = Append {
        subject: Event::Ended(Box::new(ended)).subject(&Tenant::default(), run),
        guard: Guard::None,
        id: new_id(),
        bytes: "{}".into(),
    };
    log.append(append).await.expect("an append");
}

/// The end of `run`; acknowledges those of other runs.
async fn given(feed: &dyn Feed, run: RunId) -> Given {
    soon(async {
        loop {
            for given in feed.next(10).await.expect("an answer") {
                if given.run == run {
                    return given;
                }
                feed.done(&given).await.expect("it is taken");
            }
        }
    })
    .await
}

async fn only_ends_are_given(log: &dyn EventLog, feed: &dyn Feed) {
    grow(log, new_run(), 3).await;
    let run = new_run();
    end(log, run).await;
    let given = soon(feed.next(10)).await.expect("an answer");
    assert_eq!(
        given.iter().map(|given| given.run).collect::<Vec<_>>(),
        [run]
    );
    feed.done(&given[0]).await.expect("it is taken");
}

async fn each_end_is_given_to_one(log: &dyn EventLog, feed: &dyn Feed, elsewhere: &dyn Feed) {
    const RUNS: usize = 20;
    let mut runs = BTreeSet::new();
    for _ in 0..RUNS {
        let run = new_run();
        end(log, run).await;
        runs.insert(run);
    }
    let mut seen = Vec::new();
    soon(async {
        while seen.len() < RUNS {
            for feed in [feed, elsewhere] {
                for given in feed.next(3).await.expect("an answer") {
                    feed.done(&given).await.expect("it is taken");
                    seen.push(given.run);
                }
            }
        }
    })
    .await;
    assert_eq!(seen.len(), RUNS);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), runs);
}

async fn what_is_given_back_comes_again_and_what_is_done_does_not(
    log: &dyn EventLog,
    feed: &dyn Feed,
    elsewhere: &dyn Feed,
) {
    let (done, back) = (new_run(), new_run());
    end(log, done).await;
    let first = given(feed, done).await;
    feed.done(&first).await.expect("it is taken");
    end(log, back).await;
    let second = given(feed, back).await;
    feed.again(&second, PAUSE).await.expect("it is taken");
    let again = soon(async {
        loop {
            let given = elsewhere.next(10).await.expect("an answer");
            if !given.is_empty() {
                return given;
            }
        }
    })
    .await;
    assert_eq!(
        again.iter().map(|given| given.run).collect::<Vec<_>>(),
        [back]
    );
    assert_eq!(again[0].stored_at, second.stored_at);
    elsewhere.done(&again[0]).await.expect("it is taken");
}
