//! One program's connection to the ended runs, which all programs share.

use std::time::Duration;

use aod_domain::subject::Subject;
use aod_ports::feed::{Feed, FeedError, GIVEN_FOR, Given};
use async_trait::async_trait;
use tokio::time::Instant;

use super::Broker;
use crate::clock;
use crate::link::{Link, Unreachable};

/// How long a request for ends waits for the first. Source: the adapter.
const WAIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct SimulatedFeed {
    pub(crate) broker: Broker,
    pub(crate) link: Link,
}

fn unreachable(error: Unreachable) -> FeedError {
    FeedError(error.into())
}

impl SimulatedFeed {
    /// Takes what is due, and returns the time of the next delivery.
    fn take(&self, max: usize) -> (Vec<Given>, Option<Instant>) {
        let (now, elapsed) = (Instant::now(), self.broker.world.elapsed());
        let mut state = self.broker.state();
        let due = state.ends.iter().filter(|(_, due)| **due <= now);
        let due: Vec<u64> = due.map(|(sequence, _)| *sequence).take(max).collect();
        let mut given = Vec::new();
        for sequence in due {
            state.ends.insert(sequence, now + GIVEN_FOR);
            let logged = state.logged(sequence);
            given.extend(Subject::run_of(&logged.subject).map(|run| Given {
                run,
                stored_at: clock::after(elapsed.saturating_sub(logged.at.elapsed())),
                receipt: sequence.to_string(),
            }));
        }
        let next = state.ends.values().min().copied();
        (given, next)
    }

    async fn say(&self, given: &Given, due: Option<Instant>) -> Result<(), FeedError> {
        self.link.hop().await.map_err(unreachable)?;
        let sequence = given.receipt.parse().unwrap_or_default();
        let mut state = self.broker.state();
        match due {
            None => drop(state.ends.remove(&sequence)),
            Some(due) => drop(state.ends.insert(sequence, due)),
        }
        drop(state);
        self.broker.queue_changes.send_modify(|count| *count += 1);
        Ok(())
    }
}

#[async_trait]
impl Feed for SimulatedFeed {
    async fn next(&self, max: usize) -> Result<Vec<Given>, FeedError> {
        let deadline = Instant::now() + WAIT;
        self.link.patiently().await.map_err(unreachable)?;
        loop {
            let mut changes = self.broker.queue_changes.subscribe();
            let (given, next) = self.take(max);
            if !given.is_empty() {
                // A lost delivery is redelivered.
                return self.link.hop().await.map(|()| given).map_err(unreachable);
            }
            let more = self.link.wait_for_more(&mut changes, next, deadline);
            if !more.await.map_err(unreachable)? {
                return Ok(Vec::new());
            }
        }
    }

    async fn done(&self, given: &Given) -> Result<(), FeedError> {
        self.say(given, None).await
    }

    async fn again(&self, given: &Given, pause: Duration) -> Result<(), FeedError> {
        self.say(given, Some(Instant::now() + pause)).await
    }
}
