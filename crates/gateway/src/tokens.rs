//! Issued tokens, in memory. Every gateway follows their events, so it learns of a new or revoked token a moment after
//! the event is stored.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use aod_domain::access::{Command, Event, Principal, Tokens, decide};
use aod_domain::chain::Chain as _;
use aod_domain::digest::Digest;
use aod_domain::subject;
use aod_ports::event_log::{EventLog, ReadError, StoredEvent};
use jiff::Timestamp;

use crate::context::Context;
use crate::error::Result;

/// Events about tokens read at a time.
const PAGE_SIZE: usize = 500;

/// All tokens, as known to this gateway.
#[derive(Debug, Default)]
pub(crate) struct TokenBook(RwLock<Tokens>);

impl TokenBook {
    /// Reads all tokens.
    pub(crate) async fn load(log: &dyn EventLog) -> Result<Self, ReadError> {
        let book = Self::default();
        book.catch_up(log).await?;
        Ok(book)
    }

    /// The principal of the token with this hash, if the token is valid at `now`.
    pub(crate) fn find(&self, sha256: &Digest, now: Timestamp) -> Option<Principal> {
        let tokens = self.tokens();
        tokens
            .find(sha256, now)
            .map(aod_domain::access::Token::principal)
    }

    pub(crate) fn tokens(&self) -> RwLockReadGuard<'_, Tokens> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    async fn catch_up(&self, log: &dyn EventLog) -> Result<(), ReadError> {
        loop {
            let after = self.tokens().sequence();
            let page = log.read(subject::TOKENS, after, PAGE_SIZE).await?;
            for stored in &page {
                self.take(stored);
            }
            if page.len() < PAGE_SIZE {
                return Ok(());
            }
        }
    }

    pub(crate) fn take(&self, stored: &StoredEvent) {
        match stored.decode::<Event>() {
            Ok(recorded) => {
                let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
                let Ok(()) = tokens.apply(recorded);
            }
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "ignored an unreadable event of a token");
                let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
                tokens.skip(stored.sequence, Digest::of(&stored.bytes));
            }
        }
    }
}

/// Executes `command` for `by`; returns the tokens and the sequence of the event once this gateway has applied it.
pub(crate) async fn handle(
    context: &Context,
    command: &Command,
    by: &Principal,
) -> Result<(Tokens, u64)> {
    let writer = context.runs.writer();
    // Another gateway may have issued the token a moment ago.
    context.tokens.catch_up(writer.log().as_ref()).await?;
    let mut tokens = context.tokens.tokens().clone();
    let decide = |tokens: &Tokens, now| decide(tokens, command, by, now).map(Some);
    let sequence = writer.change(&mut tokens, decide).await?;
    context.tokens.catch_up(writer.log().as_ref()).await?;
    Ok((tokens, sequence.expect("a change is an event")))
}
