//! Bearer tokens: issued, revoked, and known by the hash of their secret alone.
//!
//! All events about tokens are one chain with one guard, so that a name is never given twice. The secret is 256
//! random bits, so its SHA-256 says nothing of it, and to find a token by that hash takes a time that tells
//! nothing either.

use std::collections::{BTreeMap, HashMap};

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Principal, Role, Scope};
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::TokenId;
use crate::subject::{self, Subject};
use crate::tenant::Tenant;
use crate::text::token_text;

/// Tokens of one tenant, or of all tenants, that count at a time: each gateway has all of them in memory.
pub const TOKENS_MAX: usize = 10_000;

/// As whom events name whoever has the token that a gateway is started with.
pub const OPERATOR: &str = "operator";

/// As whom events name everybody where there are no tokens.
pub const DEVELOPMENT: &str = "development";

/// Names that no token of all tenants may have: events could not tell who acted.
const WITHOUT_TOKEN: [&str; 2] = [OPERATOR, DEVELOPMENT];

/// The secret of a token as people have it: so marked that whoever finds one knows what it opens.
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
    /// Of its secret.
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

    /// Whoever shows it.
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

/// What happens to a token.
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

/// All tokens that were issued and not revoked.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    by_id: BTreeMap<TokenId, Recorded<Token>>,
    by_hash: HashMap<Digest, TokenId>,
    last: Option<(u64, Digest)>,
}

impl Tokens {
    /// Takes an event in; events come in the order of the log.
    pub fn apply(&mut self, recorded: Recorded<Event>) {
        if self.sequence() >= recorded.sequence {
            return;
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
    }

    /// Goes on behind an event that cannot be read.
    pub fn skip(&mut self, sequence: u64, hash: Digest) {
        self.last = self.last.max(Some((sequence, hash)));
    }

    /// The last event: what the next one is guarded on and chained to.
    pub const fn last(&self) -> Option<(u64, Digest)> {
        self.last
    }

    /// The sequence of the last event; 0 if there is none.
    pub fn sequence(&self) -> u64 {
        self.last.map_or(0, |(sequence, _)| sequence)
    }

    /// The token whose secret has the hash `sha256`, if it counts at `now`.
    pub fn find(&self, sha256: &Digest, now: Timestamp) -> Option<&Token> {
        let token = &self.by_id.get(self.by_hash.get(sha256)?)?.event;
        (!token.is_expired(now)).then_some(token)
    }

    /// Those that `principal` may know of, the earliest first.
    pub fn seen_by(&self, principal: &Principal) -> impl Iterator<Item = &Recorded<Token>> {
        let tokens = self.by_id.values();
        tokens.filter(|token| principal.scope.covers(&token.event.scope()))
    }
}

/// What somebody wants to happen to a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Issue(Token),
    Revoke(TokenId),
}

/// An answer of the rules: no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The name tells events who acted.
    #[error("there is a token {0} already: revoke it first, or choose another name")]
    NameTaken(String),
    #[error("there are {TOKENS_MAX} tokens, and may not be more: revoke some")]
    TooMany,
    /// Nobody makes a token that sees more than they do.
    #[error("a token of a tenant makes tokens of that tenant only")]
    OutOfScope,
    /// There is none, or it is another tenant's.
    #[error("there is no token {0}")]
    Unknown(TokenId),
}

/// The event to store, or why not.
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
