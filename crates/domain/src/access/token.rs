//! Access tokens: issued, revoked, and known only by the hash of their secret.
//!
//! All token events form one chain with one guard, so that no name is issued twice. A secret has 256 random bits, so
//! its SHA-256 reveals nothing about it, and neither does the time of a lookup by that hash.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AGENT_ON_DEMAND, Principal, Role, Scope};
use crate::chain::Chain;
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::TokenId;
use crate::subject::{self, Subject};
use crate::tenant::Tenant;
use crate::text::token_text;

/// Maximum valid tokens of one tenant, or of all tenants: each gateway holds all tokens in memory.
pub const TOKENS_MAX: usize = 10_000;

/// The name in events of a principal with the token that a gateway is started with.
pub const OPERATOR: &str = "operator";

/// The name in events of all principals if there are no tokens.
pub const DEVELOPMENT: &str = "development";

/// Names that no token of all tenants may have, because events could not distinguish the principals.
const WITHOUT_TOKEN: [&str; 3] = [OPERATOR, DEVELOPMENT, AGENT_ON_DEMAND];

/// The secret of a token as text, with a prefix that shows where the token is valid.
pub fn secret_text(random: &[u8; 32]) -> String {
    format!("aod_{}", HEXLOWER.encode(random))
}

/// The name of a token: 1 to 63 of `a-z`, `0-9` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenName(String);

token_text!(
    TokenName,
    /// A text that cannot be a [`TokenName`].
    MalformedTokenName,
    "name"
);

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    #[serde(rename = "token")]
    pub id: TokenId,
    pub name: TokenName,
    /// None for the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    pub role: Role,
    /// Of the secret.
    pub sha256: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub requested_by: String,
}

impl Token {
    pub fn scope(&self) -> Scope {
        self.tenant.clone().into()
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// The principal with this token.
    pub fn principal(&self) -> Principal {
        let name = match &self.tenant {
            Some(tenant) => format!("{tenant}/{}", self.name),
            None => self.name.to_string(),
        };
        Principal {
            name,
            role: self.role,
            scope: self.scope(),
        }
    }
}

/// A change of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    #[serde(rename = "dev.aod.token.issued.v1")]
    Issued(Token),
    #[serde(rename = "dev.aod.token.revoked.v1")]
    Revoked {
        token: TokenId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<Tenant>,
        requested_by: String,
    },
}

impl Event {
    pub const fn token(&self) -> TokenId {
        match self {
            Self::Issued(token) => token.id,
            Self::Revoked { token, .. } => *token,
        }
    }

    pub fn subject(&self) -> Subject {
        let (tenant, word) = match self {
            Self::Issued(token) => (&token.tenant, "issued"),
            Self::Revoked { tenant, .. } => (tenant, "revoked"),
        };
        subject::token_event(tenant.as_ref(), self.token(), word)
    }
}

/// All tokens that are issued and not revoked.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    by_id: BTreeMap<TokenId, Recorded<Token>>,
    by_hash: HashMap<Digest, TokenId>,
    last: Option<(u64, Digest)>,
}

impl Tokens {
    /// Skips an event that cannot be read.
    pub fn skip(&mut self, sequence: u64, hash: Digest) {
        self.last = self.last.max(Some((sequence, hash)));
    }

    /// The sequence of the last event; 0 without one.
    pub fn sequence(&self) -> u64 {
        self.last.map_or(0, |(sequence, _)| sequence)
    }

    /// The valid token `id`.
    pub fn get(&self, id: TokenId) -> Option<&Recorded<Token>> {
        self.by_id.get(&id)
    }

    /// The token whose secret has the hash `sha256`, if it is valid at `now`.
    pub fn find(&self, sha256: &Digest, now: Timestamp) -> Option<&Token> {
        let token = &self.by_id.get(self.by_hash.get(sha256)?)?.event;
        (!token.is_expired(now)).then_some(token)
    }

    /// The tokens that `principal` may know about, oldest first.
    pub fn seen_by(&self, principal: &Principal) -> impl Iterator<Item = &Recorded<Token>> {
        let tokens = self.by_id.values();
        tokens.filter(|token| principal.scope.covers(&token.event.scope()))
    }
}

impl Chain for Tokens {
    type Event = Event;
    type Broken = Infallible;

    fn name(&self) -> String {
        "the tokens".to_owned()
    }

    fn filter(&self) -> String {
        subject::TOKENS.to_owned()
    }

    fn subject(&self, event: &Event) -> Subject {
        event.subject()
    }

    fn about(&self, event: &Event) -> String {
        event.token().to_string()
    }

    fn last(&self) -> Option<(u64, Digest)> {
        self.last
    }

    fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), Infallible> {
        if self.sequence() >= recorded.sequence {
            return Ok(());
        }
        self.last = Some((recorded.sequence, recorded.hash));
        match &recorded.event {
            Event::Issued(token) => {
                let token = token.clone();
                self.by_hash.insert(token.sha256, token.id);
                self.by_id.insert(token.id, recorded.map(|_| token));
            }
            Event::Revoked { token, .. } => {
                if let Some(gone) = self.by_id.remove(token) {
                    self.by_hash.remove(&gone.event.sha256);
                }
            }
        }
        Ok(())
    }
}

/// A command for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Issue(Token),
    Revoke(TokenId),
}

/// Why a command is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Events identify principals by name.
    #[error("a token named {0} exists already: revoke it first, or choose another name")]
    NameTaken(String),
    #[error("there are {TOKENS_MAX} tokens, the maximum: revoke a token first")]
    TooMany,
    /// No principal may issue a token with a wider scope than its own.
    #[error("a token of one tenant can only create tokens of that tenant")]
    OutOfScope,
    /// The token does not exist, or belongs to another tenant.
    #[error("no token has the id {0}")]
    Unknown(TokenId),
}

/// The event to store, or the rejection.
pub fn decide(
    tokens: &Tokens,
    command: &Command,
    by: &Principal,
    now: Timestamp,
) -> Result<Event, Rejection> {
    match command {
        Command::Issue(token) => issue(tokens, token, by, now),
        Command::Revoke(id) => revoke(tokens, *id, by),
    }
}

fn issue(
    tokens: &Tokens,
    token: &Token,
    by: &Principal,
    now: Timestamp,
) -> Result<Event, Rejection> {
    if !by.scope.covers(&token.scope()) {
        return Err(Rejection::OutOfScope);
    }
    if token.tenant.is_none() && WITHOUT_TOKEN.contains(&token.name.as_str()) {
        return Err(Rejection::NameTaken(token.principal().name));
    }
    let others = tokens.by_id.values().map(|other| &other.event);
    let of_tenant = others.filter(|other| other.tenant == token.tenant && !other.is_expired(now));
    let mut count = 0;
    for other in of_tenant {
        if other.name == token.name {
            return Err(Rejection::NameTaken(token.principal().name));
        }
        count += 1;
    }
    if count >= TOKENS_MAX {
        return Err(Rejection::TooMany);
    }
    Ok(Event::Issued(token.clone()))
}

fn revoke(tokens: &Tokens, id: TokenId, by: &Principal) -> Result<Event, Rejection> {
    let known = tokens.by_id.get(&id);
    let known = known.filter(|token| by.scope.covers(&token.event.scope()));
    let token = known.ok_or(Rejection::Unknown(id))?;
    Ok(Event::Revoked {
        token: id,
        tenant: token.event.tenant.clone(),
        requested_by: by.name.clone(),
    })
}
