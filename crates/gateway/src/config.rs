//! Configuration of a gateway, and its ports.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::access::WithoutToken;
use aod_domain::audit::SealKey;
use aod_domain::digest::Digest;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::Clock;
use aod_ports::event_log::EventLog;
use aod_ports::feed::Feed;
use aod_ports::log_stream::LogStream;
use aod_ports::presence::Presence;
use aod_ports::work_queue::WorkQueue;
use jiff::SignedDuration;

use crate::tls::Tls;

/// Configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on; port 0 takes a free port.
    pub listen: SocketAddr,
    /// URL at which nodes reach this gateway; default: `http://` or `https://` and the bound address.
    pub public_url: Option<String>,
    pub access: Access,
    /// Directory of the read model; can be deleted at any time.
    pub data_directory: PathBuf,
    /// Time that the read model waits for more events before it applies them in one transaction.
    pub lists_delay: Duration,
    /// Lifetime of a lease without progress; the same for every program of a cluster.
    pub lease_seconds: u32,
    /// Maximum time that one request waits for a result.
    pub wait_seconds_max: u32,
    /// Maximum size of an uploaded file, in bytes.
    pub upload_bytes_max: u64,
    /// Bytes on each disk, and in a store with a limit, reserved for running trees; default: a part of the space.
    pub disk_reserve: Option<u64>,
    /// Time for which artifacts that no event names are kept after they were put or renewed:
    /// [`aod_domain::retention::UNNAMED_FOR`] except in tests.
    pub unnamed_for: SignedDuration,
    /// Key that signs ended trees.
    pub seal_key: Arc<SealKey>,
    /// Minimum time for which events stay in the broker; afterwards only the archive has them. None: forever.
    pub log_age: Option<SignedDuration>,
    /// Certificate and key of the listener; without them, it uses plain HTTP.
    pub tls: Option<Arc<Tls>>,
}

/// Default of `lists_delay`: a transaction of one event writes nearly as much as a transaction of fifty.
pub const LISTS_DELAY: Duration = Duration::from_millis(20);

/// Access to the gateway.
#[derive(Clone, Debug)]
pub enum Access {
    /// Without tokens, for development; only on loopback. A request with a token has the role of the token.
    Development,
    /// Only with one of these tokens, which are valid for everything, or with an issued token.
    Tokens(Vec<Token>),
    /// As [`Self::Tokens`]; clients of agent-on-demand on this host need no token. Only on loopback.
    TokensOrAgentOnDemand(Vec<Token>),
}

impl Access {
    /// The requests that need no token.
    pub(crate) const fn without_token(&self) -> WithoutToken {
        match self {
            Self::Development => WithoutToken::Everything,
            Self::Tokens(_) => WithoutToken::Nothing,
            Self::TokensOrAgentOnDemand(_) => WithoutToken::Compatibility,
        }
    }

    /// The tokens that are valid for everything.
    pub(crate) fn tokens(&self) -> &[Token] {
        match self {
            Self::Development => &[],
            Self::Tokens(tokens) | Self::TokensOrAgentOnDemand(tokens) => tokens,
        }
    }
}

/// A bearer token, identified by its hash.
#[derive(Clone, Debug)]
pub struct Token {
    /// Name of the token's owner, recorded in runs.
    pub principal: String,
    /// SHA-256 of the token's text.
    pub sha256: Digest,
}

/// The ports of a gateway.
#[derive(Clone, Debug)]
pub struct Ports {
    pub log: Arc<dyn EventLog>,
    pub queue: Arc<dyn WorkQueue>,
    pub logs: Arc<dyn LogStream>,
    pub presence: Arc<dyn Presence>,
    pub artifacts: Arc<dyn ArtifactStore>,
    pub clock: Arc<dyn Clock>,
    /// Ended runs; each is delivered to one gateway, which seals its tree.
    pub ends: Arc<dyn Feed>,
}
