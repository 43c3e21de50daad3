//! The connection of one program to everything else, which can be cut and restored.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::world::World;

/// How long an adapter tries to reach the broker. Source: the adapters.
const PATIENCE: Duration = Duration::from_secs(20);

/// One message in this number is late where a lease depends on its time.
const STALLS_ONE_IN: u64 = 40;

/// Longer than a lease.
const STALL_MILLISECONDS_MAX: u64 = 8_000;

/// The broker, or a store, does not answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer")]
pub(crate) struct Unreachable;

/// Whether a destination is reachable.
#[derive(Clone, Debug)]
pub(crate) struct Switch(Arc<watch::Sender<bool>>);

impl Switch {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(true)))
    }

    pub(crate) fn set(&self, is_on: bool) {
        self.0.send_replace(is_on);
    }

    pub(crate) fn is_on(&self) -> bool {
        *self.0.borrow()
    }

    async fn until(&self, is_on: bool) {
        let mut changes = self.0.subscribe();
        let _ = changes.wait_for(|&now| now == is_on).await;
    }
}

/// A program's connection to a server.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) world: World,
    pub(crate) who: Arc<str>,
    host: Switch,
    server: Switch,
}

impl Link {
    pub(crate) fn new(world: &World, who: &str, host: &Switch, server: &Switch) -> Self {
        Self {
            world: world.clone(),
            who: who.into(),
            host: host.clone(),
            server: server.clone(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.host.is_on() && self.server.is_on()
    }

    /// Returns when the connection is up.
    pub(crate) async fn up(&self) {
        while !self.is_up() {
            self.host.until(true).await;
            self.server.until(true).await;
        }
    }

    /// Returns when the connection is down.
    pub(crate) async fn down(&self) {
        tokio::select! {
            biased;
            () = self.host.until(false) => (),
            () = self.server.until(false) => (),
        }
    }

    /// Waits until the server has news, or until `due`; false after `deadline`.
    pub(crate) async fn wait_for_more(
        &self,
        changes: &mut watch::Receiver<u64>,
        due: Option<Instant>,
        deadline: Instant,
    ) -> Result<bool, Unreachable> {
        let wake = due.map_or(deadline, |due| due.min(deadline));
        tokio::select! {
            biased;
            () = self.down() => Err(Unreachable),
            _ = changes.changed() => Ok(true),
            () = tokio::time::sleep_until(wake) => Ok(Instant::now() < deadline),
        }
    }

    /// The transfer of one message in one direction: it takes time, and may fail.
    pub(crate) async fn hop(&self) -> Result<(), Unreachable> {
        if !self.is_up() {
            return Err(Unreachable);
        }
        self.world.pause().await;
        if self.is_up() {
            Ok(())
        } else {
            Err(Unreachable)
        }
    }

    /// Like [`Link::hop`], but sometimes very late: the connection stalls without a break.
    pub(crate) async fn stalling_hop(&self, what: &'static str) -> Result<(), Unreachable> {
        if self.world.strikes(what, STALLS_ONE_IN) {
            let milliseconds = self.world.below(STALL_MILLISECONDS_MAX);
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        }
        self.hop().await
    }

    /// Like [`Link::hop`], retried as long as an adapter does.
    pub(crate) async fn patiently(&self) -> Result<(), Unreachable> {
        let trying = async {
            loop {
                self.up().await;
                if self.hop().await.is_ok() {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, trying)
            .await
            .map_err(|_| Unreachable)
    }
}
