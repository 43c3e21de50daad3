//! The connection that all adapters share: its state, and retries.
//!
//! The client reconnects and keeps unsent messages, but a request whose answer is lost with the
//! connection would wait for its time-out. So each operation also waits for the loss of the connection,
//! and retries after the reconnect. Callers decide which operations may be repeated.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use aod_ports::BoxError;
use async_nats::jetstream::Context;
use async_nats::{Client, Event, connection::State};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

/// Maximum time of an operation with its retries, in seconds: enough for a server that is killed, restarted
/// after 5 s, and reads a large log.
const PATIENCE_SECONDS_MAX: u64 = 20;

/// Pauses between attempts double from the first to the second of these, in milliseconds.
const PAUSE_MILLISECONDS_MIN: u64 = 10;
const PAUSE_MILLISECONDS_MAX: u64 = 500;

/// Interval of polls of the client's state, because the bounded channel of events may lose an event.
const STATE_POLL: Duration = Duration::from_millis(250);

/// The connection's state from its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// Number of the connection: requests of an earlier connection are lost.
    pub(crate) epoch: u64,
    pub(crate) is_up: bool,
}

/// The server's error for a publish without the right for it, before the subject in quotes.
const DENIED: &str = "Permissions Violation for Publish to \"";

/// Maximum number of remembered denied subjects: more than a program uses.
const DENIED_MAX: usize = 1_000;

/// The program's user lacks a right.
#[derive(Debug, Error)]
#[error(
    "the broker's user of this program may not publish to {0}; use the credentials of the program's part, or rewrite \
     the users with the newest `aod` of the cluster (`aod credentials DIR`) and reload nats-server"
)]
pub(crate) struct Denied(String);

/// Writes the state that [`Link`]s read, from the client's events.
#[derive(Debug, Default)]
pub(crate) struct LinkEvents {
    state: watch::Sender<LinkState>,
    denied: watch::Sender<BTreeSet<String>>,
}

impl LinkEvents {
    pub(crate) fn subscribe(&self) -> watch::Receiver<LinkState> {
        self.state.subscribe()
    }

    /// Records a subject that the server has denied.
    fn take_error(&self, error: &str) {
        let Some((_, rest)) = error.split_once(DENIED) else {
            return;
        };
        let subject = rest.split('"').next().unwrap_or_default().to_owned();
        self.denied.send_modify(|denied| {
            if denied.len() < DENIED_MAX {
                denied.insert(subject);
            }
        });
    }

    /// Returns after the server has denied `subject`; forgets the denial, because rights may change.
    async fn denied(&self, subject: &str) {
        let mut denied = self.denied.subscribe();
        // The channel does not close, because `self` has the sender.
        let _ = denied.wait_for(|denied| denied.contains(subject)).await;
        self.denied
            .send_if_modified(|denied| denied.remove(subject));
    }

    /// Logs the event and counts connections.
    pub(crate) fn take(&self, event: &Event) {
        match event {
            Event::Connected => {
                let is_first = self.state.borrow().epoch == 0;
                if !is_first {
                    tracing::info!("reconnected to the broker");
                }
                self.state.send_modify(|state| {
                    *state = LinkState {
                        epoch: state.epoch + 1,
                        is_up: true,
                    };
                });
            }
            Event::Disconnected | Event::Closed => {
                tracing::warn!("the connection to the broker is {event}");
                self.state.send_modify(|state| state.is_up = false);
            }
            Event::SlowConsumer(subscription) => {
                tracing::warn!(
                    subscription,
                    "messages from the broker arrived faster than the program read them"
                );
            }
            Event::ServerError(error) => {
                tracing::error!(%error, "the broker reports an error");
                self.take_error(&error.to_string());
            }
            Event::ClientError(error) => {
                tracing::warn!(%error, "the connection to the broker failed");
            }
            Event::LameDuckMode | Event::Draining => {
                tracing::info!("the broker's connection: {event}");
            }
        }
    }
}

/// Why an attempt failed, and whether a retry can help.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) source: BoxError,
    pub(crate) is_final: bool,
}

impl Failure {
    pub(crate) fn transient(source: impl Into<BoxError>) -> Self {
        Self {
            source: source.into(),
            is_final: false,
        }
    }

    pub(crate) fn last(source: impl Into<BoxError>) -> Self {
        Self {
            source: source.into(),
            is_final: true,
        }
    }
}

/// A handle on the connection.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) context: Context,
    /// The program's name, part of its consumers' names.
    pub(crate) name: Arc<str>,
    events: Arc<LinkEvents>,
    state: watch::Receiver<LinkState>,
}

impl Link {
    pub(crate) fn new(
        client: Client,
        context: Context,
        name: &str,
        events: Arc<LinkEvents>,
    ) -> Self {
        Self {
            client,
            context,
            name: name.into(),
            state: events.subscribe(),
            events,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Waits for a connection and returns its epoch.
    pub(crate) async fn up(&self) -> u64 {
        let mut state = self.state.clone();
        loop {
            let now = *state.borrow_and_update();
            if now.is_up || self.is_up() {
                return now.epoch;
            }
            // After the time-out, poll the client.
            let _ = timeout(STATE_POLL, state.changed()).await;
        }
    }

    /// Waits for the connection after the one of `epoch`.
    pub(crate) async fn replaced(&self, epoch: u64) {
        self.wait_for(|state| state.epoch != epoch).await;
    }

    /// Waits until the connection of `epoch` is lost.
    async fn lost(&self, epoch: u64) {
        self.wait_for(|state| state.epoch != epoch || !state.is_up)
            .await;
    }

    async fn wait_for(&self, condition: impl Fn(&LinkState) -> bool) {
        let mut state = self.state.clone();
        if state.wait_for(|state| condition(state)).await.is_err() {
            // The client has ended.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for a connection, then for `operation` until that connection is lost.
    pub(crate) async fn within_connection<T>(
        &self,
        deadline: Instant,
        operation: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let guarded = async {
            let epoch = self.up().await;
            tokio::select! {
                outcome = operation => outcome,
                () = self.lost(epoch) => Err(Failure::transient("the connection to the broker was lost")),
            }
        };
        tokio::select! {
            outcome = guarded => outcome,
            () = sleep_until(deadline) => Err(Failure::transient("the broker did not answer in time")),
        }
    }

    /// The outcome of `operation`, which publishes to `subject`, or [`Denied`]: the server does not answer a
    /// denied request.
    pub(crate) async fn permitted<T>(
        &self,
        subject: &str,
        operation: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            outcome = operation => outcome,
            () = self.events.denied(subject) => Err(Failure::last(Denied(subject.to_owned()))),
        }
    }

    /// Retries until a final outcome, or for [`PATIENCE_SECONDS_MAX`]. Only for repeatable operations.
    pub(crate) async fn patiently<T, F>(
        &self,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, BoxError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut pauses = Pauses::new();
        loop {
            match self.within_connection(pauses.deadline(), attempt()).await {
                Ok(value) => return Ok(value),
                Err(failure) if failure.is_final || pauses.is_over() => return Err(failure.source),
                Err(_) => pauses.wait().await,
            }
        }
    }
}

/// The pauses between attempts: growing, random (so that writers diverge), within one deadline.
#[derive(Debug)]
pub(crate) struct Pauses {
    deadline: Instant,
    next_milliseconds: u64,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self {
            deadline: Instant::now() + Duration::from_secs(PATIENCE_SECONDS_MAX),
            next_milliseconds: PAUSE_MILLISECONDS_MIN,
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Sleeps for half of the next pause up to all of it.
    pub(crate) async fn wait(&mut self) {
        let half = self.next_milliseconds / 2;
        self.next_milliseconds = (self.next_milliseconds * 2).min(PAUSE_MILLISECONDS_MAX);
        // The low half of a UUIDv7 is random.
        let (_, random) = Uuid::now_v7().as_u64_pair();
        sleep(Duration::from_millis(half + random % (half + 1))).await;
    }
}
