//! The one connection that all adapters share: what it is doing, and how long they bear with it.
//!
//! The client reconnects by itself and keeps what it has not sent, but a request whose answer was
//! on its way when the connection broke would wait for its time-out. So everybody races the
//! answer with the loss of the connection, and tries again once it is back. What is safe to try
//! again is left to the callers.

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

/// How long an operation is tried before it is given up, in seconds: a server that is killed and
/// started again after 5 s is back well within, with time to read a large log.
const PATIENCE_SECONDS_MAX: u64 = 20;

/// Pauses between tries double from the first to the second of these, in milliseconds.
const PAUSE_MILLISECONDS_MIN: u64 = 10;
const PAUSE_MILLISECONDS_MAX: u64 = 500;

/// How often the client itself is asked for its state, in case that its event got lost: the
/// channel of events is bounded.
const STATE_POLL: Duration = Duration::from_millis(250);

/// The connection as its events tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// Counts the connections made: what was under way in an earlier one is lost.
    pub(crate) epoch: u64,
    pub(crate) is_up: bool,
}

/// What the server says of a publish that the user's rights do not cover, before the subject in quotes.
const DENIED: &str = "Permissions Violation for Publish to \"";

/// Subjects that are remembered as denied: more than a program uses.
const DENIED_MAX: usize = 1_000;

/// The user may not do what the program wants of it.
#[derive(Debug, Error)]
#[error(
    "the broker's user may not publish to {0}: whoever looks after the broker gives this program the credentials \
     of its part, or makes the users anew with the newest `aod` that runs (`aod credentials DIR`) and has \
     nats-server read them"
)]
pub(crate) struct Denied(String);

/// Writes the state that [`Link`]s read; the client's events are its input.
#[derive(Debug, Default)]
pub(crate) struct LinkEvents {
    state: watch::Sender<LinkState>,
    denied: watch::Sender<BTreeSet<String>>,
}

impl LinkEvents {
    pub(crate) fn subscribe(&self) -> watch::Receiver<LinkState> {
        self.state.subscribe()
    }

    /// Notes a subject that the server has denied.
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

    /// Returns once the server has denied `subject`; forgets it, since rights may be widened.
    async fn denied(&self, subject: &str) {
        let mut denied = self.denied.subscribe();
        // It does not end: the sender is here.
        let _ = denied.wait_for(|denied| denied.contains(subject)).await;
        self.denied
            .send_if_modified(|denied| denied.remove(subject));
    }

    /// Logs the event, and counts connections.
    pub(crate) fn take(&self, event: &Event) {
        match event {
            Event::Connected => {
                let is_first = self.state.borrow().epoch == 0;
                if !is_first {
                    tracing::info!("the connection to the broker is back");
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
                    "messages of the broker came faster than they were taken"
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

/// Why a try failed, and whether another can help.
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
    /// The program's name, which its consumers carry.
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

    /// Waits for a connection and answers with its epoch.
    pub(crate) async fn up(&self) -> u64 {
        let mut state = self.state.clone();
        loop {
            let now = *state.borrow_and_update();
            if now.is_up || self.is_up() {
                return now.epoch;
            }
            // An elapsed time-out only means to ask the client.
            let _ = timeout(STATE_POLL, state.changed()).await;
        }
    }

    /// Waits until the connection of `epoch` is replaced by another.
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
            // The client is gone, and so is whoever could answer.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for a connection, then for `operation` as long as that connection lives.
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

    /// The outcome of `operation`, which publishes to `subject`: a denial is answered by nothing at all, and
    /// would be waited for in vain.
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

    /// Tries until a final outcome, or for [`PATIENCE_SECONDS_MAX`]. Only for what may be repeated.
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

/// The pauses between tries: growing, of random length so that writers part, within one deadline.
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

    /// Sleeps for half to the whole of the next pause.
    pub(crate) async fn wait(&mut self) {
        let half = self.next_milliseconds / 2;
        self.next_milliseconds = (self.next_milliseconds * 2).min(PAUSE_MILLISECONDS_MAX);
        // The low half of a UUIDv7 is random.
        let (_, random) = Uuid::now_v7().as_u64_pair();
        sleep(Duration::from_millis(half + random % (half + 1))).await;
    }
}
