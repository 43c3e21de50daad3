//! The tokens that were issued, in memory: kept up to date from the log, so that all gateways know a new one, and
//! one that is revoked, a moment after it is stored.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use aod_domain::access::{Command, Event, Principal, Tokens, decide};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::{CloudEvent, Recorded};
use aod_domain::subject;
use aod_ports::event_log::{Append, AppendError, EventLog, Guard, ReadError, StoredEvent};
use jiff::Timestamp;

use crate::context::Context;
use crate::http::error::{ApiError, ApiResult};

/// Events about tokens read at a time.
const PAGE_SIZE: usize = 500;

/// How often a decision is taken anew because somebody else was faster: administrators are few.
const DECIDE_ATTEMPTS_MAX: u32 = 16;

/// All tokens, as this gateway knows them.
#[derive(Debug, Default)]
pub(crate) struct TokenBook(RwLock<Tokens>);

impl TokenBook {
    /// Reads all that there are.
    pub(crate) async fn load(log: &dyn EventLog) -> Result<Self, ReadError> {
        let book = Self::default();
        book.catch_up(log).await?;
        Ok(book)
    }

    /// Whoever has the token with this hash, if it counts at `now`.
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
                tokens.apply(recorded);
            }
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "an event about a token cannot be read");
                let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
                tokens.skip(stored.sequence, Digest::of(&stored.bytes));
            }
        }
    }
}

/// Carries `command` out for `by`, and answers with the event and its sequence; this gateway goes by it then.
pub(crate) async fn handle(
    context: &Context,
    command: &Command,
    by: &Principal,
) -> ApiResult<Recorded<Event>> {
    let log = context.runs.log().as_ref();
    for _ in 0..DECIDE_ATTEMPTS_MAX {
        // Another gateway may have issued a moment ago what is revoked here.
        context.tokens.catch_up(log).await?;
        let (event, last) = {
            let tokens = context.tokens.tokens();
            let event = decide(&tokens, command, by, context.ports.clock.now())?;
            (event, tokens.last())
        };
        match append(context, event, last).await {
            Ok(recorded) => {
                context.tokens.catch_up(log).await?;
                return Ok(recorded);
            }
            Err(AppendError::Conflict { .. }) => (),
            Err(error) => return Err(error.into()),
        }
    }
    let text = "others keep changing the tokens";
    Err(ApiError::new(ErrorCode::BrokerUnavailable, text))
}

async fn append(
    context: &Context,
    event: Event,
    last: Option<(u64, Digest)>,
) -> Result<Recorded<Event>, AppendError> {
    let (sequence, previous) = last.map_or((0, None), |(sequence, hash)| (sequence, Some(hash)));
    let (subject, about) = (event.subject(), event.token().to_string());
    let event = CloudEvent::new(context.runs.header(), about, previous, event);
    let guard = Guard::Last {
        filter: subject::TOKENS.to_owned(),
        sequence,
    };
    let append = Append::of(subject, guard, &event).expect("names and a hash fit an event");
    let bytes = append.bytes.clone();
    let sequence = context.runs.log().append(append).await?;
    Ok(Recorded::decode(sequence, &bytes).expect("what was just encoded can be read"))
}
