//! Presence and live logs as one program reaches them: neither is kept for long.

use std::time::Duration;

use aod_domain::id::RunId;
use aod_ports::log_stream::{LogLine, LogStream, LogStreamError};
use aod_ports::presence::{Member, PRESENCE_SECONDS, Presence, PresenceError};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::time::Instant;

use super::Broker;
use crate::link::Link;

/// Lines kept of a run.
const LINES_MAX: usize = 100;

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
        let mut state = self.broker.state();
        let kept = state.lines.entry(run).or_default();
        kept.extend(lines.iter().cloned());
        while kept.len() > LINES_MAX {
            kept.pop_front();
        }
        Ok(())
    }

    /// What is there now: nobody in a simulation reads along.
    async fn follow(
        &self,
        run: RunId,
        after: u64,
    ) -> Result<BoxStream<'static, (u64, LogLine)>, LogStreamError> {
        let state = self.broker.state();
        let lines: Vec<LogLine> = state
            .lines
            .get(&run)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let numbered = (1..).zip(lines).filter(|(number, _)| *number > after);
        let numbered: Vec<(u64, LogLine)> = numbered.collect();
        Ok(stream::iter(numbered).chain(stream::pending()).boxed())
    }
}
