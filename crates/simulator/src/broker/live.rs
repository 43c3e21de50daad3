//! One program's connection to presence and live logs.

use std::time::Duration;

use aod_domain::id::RunId;
use aod_ports::log_stream::{LogLine, LogStream, LogStreamError};
use aod_ports::presence::{Member, PRESENCE_SECONDS, Presence, PresenceError};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::time::Instant;

use super::{Broker, State};
use crate::link::Link;

/// Stored lines of a run.
const LINES_MAX: usize = 10_000;

/// Maximum size of a line, in bytes. Source: the stream of `aod_jetstream`.
const LINE_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct SimulatedPresence {
    pub(crate) broker: Broker,
    pub(crate) link: Link,
}

fn key(member: &Member) -> String {
    match member {
        Member::Gateway(gateway) => gateway.gateway.to_string(),
        Member::Node(node) => node.node.to_string(),
    }
}

impl SimulatedPresence {
    async fn reach(&self) -> Result<(), PresenceError> {
        self.link
            .hop()
            .await
            .map_err(|error| PresenceError(error.into()))
    }
}

#[async_trait]
impl Presence for SimulatedPresence {
    async fn announce(&self, member: &Member) -> Result<(), PresenceError> {
        self.reach().await?;
        let until = Instant::now() + Duration::from_secs(PRESENCE_SECONDS);
        let mut state = self.broker.state();
        state.presence.insert(key(member), (member.clone(), until));
        Ok(())
    }

    async fn leave(&self, member: &Member) -> Result<(), PresenceError> {
        self.reach().await?;
        self.broker.state().presence.remove(&key(member));
        Ok(())
    }

    async fn members(&self) -> Result<Vec<Member>, PresenceError> {
        self.reach().await?;
        let now = Instant::now();
        let state = self.broker.state();
        let present = state.presence.values().filter(|(_, until)| *until > now);
        Ok(present.map(|(member, _)| member.clone()).collect())
    }
}

#[derive(Debug)]
pub(crate) struct SimulatedLogs {
    pub(crate) broker: Broker,
    pub(crate) link: Link,
}

#[async_trait]
impl LogStream for SimulatedLogs {
    async fn publish(&self, run: RunId, lines: &[LogLine]) -> Result<(), LogStreamError> {
        let reached = self.link.hop().await;
        reached.map_err(|error| LogStreamError(error.into()))?;
        if lines.iter().any(|line| line.text.len() > LINE_BYTES_MAX) {
            return Err(LogStreamError("a line is too long".into()));
        }
        let mut state = self.broker.state();
        let mut place = state.lines_last;
        let kept = state.lines.entry(run).or_default();
        for line in lines {
            place += 1;
            kept.push_back((place, line.clone()));
        }
        let excess = kept.len().saturating_sub(LINES_MAX);
        kept.drain(..excess);
        state.lines_last = place;
        drop(state);
        self.broker.line.send_replace(place);
        Ok(())
    }

    async fn follow(
        &self,
        run: RunId,
        after: u64,
    ) -> Result<BoxStream<'static, (u64, LogLine)>, LogStreamError> {
        let broker = self.broker.clone();
        let lines = stream::unfold((broker, after), move |(broker, seen)| async move {
            let mut last = broker.line.subscribe();
            loop {
                let next = broker.state().line_after(run, seen);
                if let Some(next) = next {
                    let place = next.0;
                    return Some((next, (broker, place)));
                }
                last.changed().await.ok()?;
            }
        });
        Ok(lines.boxed())
    }
}

impl State {
    fn line_after(&self, run: RunId, seen: u64) -> Option<(u64, LogLine)> {
        let lines = self.lines.get(&run)?;
        let index = lines.partition_point(|(place, _)| *place <= seen);
        lines.get(index).cloned()
    }
}
