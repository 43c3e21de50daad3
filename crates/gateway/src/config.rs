//! What a gateway is told when it starts, and what it is given to work with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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

use crate::http::tls::Tls;

/// How a gateway behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Where nodes reach this gateway; `http://` or `https://` and the bound address unless given.
    pub public_url: Option<String>,
    pub access: Access,
    /// For the read model, which may be thrown away at any time.
    pub data_directory: PathBuf,
    /// How long an event waits for others before the lists take them in, in one transaction.
    pub lists_delay: Duration,
    /// How long a lease lives without progress; the same on every program of a cluster.
    pub lease_seconds: u32,
    /// The longest that one request may wait for a result.
    pub wait_seconds_max: u32,
    /// The largest file that may be uploaded, in bytes.
    pub upload_bytes_max: u64,
    /// Room on each of its disks, and in a store with a limit, that is kept for trees under way, in bytes; a part
    /// of it unless given.
    pub disk_reserve: Option<u64>,
    /// How long an artifact that nothing names stays, and one that was just named anew:
    /// [`aod_domain::retention::UNNAMED_FOR`] but in tests.
    pub unnamed_for: SignedDuration,
    /// What it seals trees with.
    pub seal_key: Arc<SealKey>,
    /// How long events stay in the broker at least, before only the archive has them; none for ever.
    pub log_age: Option<SignedDuration>,
    /// What it shows to whoever connects; without one it speaks plain HTTP.
    pub tls: Option<Arc<Tls>>,
}

/// The usual delay of the lists: a transaction of one event writes nearly as much as one of fifty.
pub const LISTS_DELAY: Duration = Duration::from_millis(20);

/// Who may use the gateway.
#[derive(Clone, Debug)]
pub enum Access {
    /// Everyone, for development; only on loopback. Whoever shows a token has what it opens.
    Development,
    /// Whoever has one of these tokens, which open everything, or one that was issued.
    Tokens(Vec<Token>),
}

/// A bearer token, known by its hash.
#[derive(Clone, Debug)]
pub struct Token {
    /// Who has it, as runs name them.
    pub principal: String,
    /// SHA-256 of the token's text.
    pub sha256: Digest,
}

/// The world of a gateway.
#[derive(Clone, Debug)]
pub struct Ports {
    pub log: Arc<dyn EventLog>,
    pub queue: Arc<dyn WorkQueue>,
    pub logs: Arc<dyn LogStream>,
    pub presence: Arc<dyn Presence>,
    pub artifacts: Arc<dyn ArtifactStore>,
    pub clock: Arc<dyn Clock>,
    /// Ends of runs, for one of all gateways to seal.
    pub ends: Arc<dyn Feed>,
}
