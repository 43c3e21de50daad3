//! Flags of the programs that run until a signal: `aod up`, `aod gateway`, `aod node`.

use std::net::SocketAddr;
use std::path::PathBuf;

use aod_domain::subject::Pool;
use clap::Args;
use clap::builder::BoolishValueParser;
use jiff::SignedDuration;

use super::{EquipmentArguments, PolicyArguments};

/// The default socket of Docker.
pub(super) const DOCKER_DEFAULT: &str = "unix:///var/run/docker.sock";

/// The default address of a gateway.
const LISTEN_DEFAULT: &str = "127.0.0.1:8080";

/// The connection of a program to the broker and the artifact store.
#[derive(Clone, Debug, Args)]
pub struct BrokerArguments {
    /// Address of the broker, `nats://host:port` or `tls://host:port`; for several servers, separate the addresses with
    /// commas
    #[arg(
        long,
        env = "AOD_NATS",
        value_name = "URL",
        value_delimiter = ',',
        required = true,
        hide_env_values = true
    )]
    pub nats: Vec<String>,

    /// File with the broker credentials: two lines, user and password; `aod credentials` creates it
    #[arg(
        long,
        env = "AOD_NATS_CREDENTIALS",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub nats_credentials: Option<PathBuf>,

    /// PEM file of the authorities that signed the broker's certificates [default: the system's
    /// authorities; on a node with --certificate-authority, that file]
    #[arg(long, env = "AOD_NATS_CA", value_name = "FILE", hide_env_values = true)]
    pub nats_ca: Option<PathBuf>,

    /// Monitoring address of the broker, `http://host:port`; used to check that the broker syncs each write
    #[arg(
        long,
        env = "AOD_NATS_MONITORING",
        value_name = "URL",
        hide_env_values = true
    )]
    pub nats_monitoring: Option<String>,

    /// Number of copies of each stream that a gateway creates, at most one per broker server; does not change existing
    /// streams. No effect on a node
    #[arg(long, env = "AOD_NATS_REPLICAS", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=5), hide_env_values = true)]
    pub nats_replicas: u8,

    /// Artifact store: `jetstream` (in the broker), `file:///path`, `s3://bucket?endpoint=…`, `gs://…`, `az://…`
    #[arg(
        long,
        env = "AOD_STORE",
        value_name = "URL",
        default_value = "jetstream",
        hide_env_values = true
    )]
    pub store: String,

    /// Maximum size of the local artifact cache, in bytes
    #[arg(long, env = "AOD_CACHE_BYTES", value_name = "BYTES", default_value_t = 20 << 30, hide_env_values = true)]
    pub cache_bytes: u64,

    /// Lease time: if a node does not renew its lease of a run within this time, another node takes over the run; the
    /// same for all gateways and nodes
    #[arg(long, env = "AOD_LEASE_SECONDS", value_name = "SECONDS", default_value_t = aod_jetstream::LEASE_SECONDS_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..=3600), hide_env_values = true)]
    pub lease_seconds: u32,
}

#[derive(Clone, Debug, Args)]
pub struct GatewayArguments {
    #[command(flatten)]
    pub broker: BrokerArguments,

    /// Address to listen on
    #[arg(long, env = "AOD_LISTEN", value_name = "ADDR", default_value = LISTEN_DEFAULT, hide_env_values = true)]
    pub listen: SocketAddr,

    /// URL of this gateway that nodes connect to [default: the listen address]
    #[arg(
        long,
        env = "AOD_PUBLIC_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    pub public_url: Option<String>,

    /// File with the administrator token. Without this file, the gateway starts only if --listen is a loopback address,
    /// and clients on this host need no token
    #[arg(
        long,
        env = "AOD_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,

    /// Directory for the read model, the artifact cache and the seal key [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,

    /// File with the key that signs ended trees; the same for all gateways; `aod credentials` creates it
    /// [default: seal.key in the data directory, created if missing]
    #[arg(
        long,
        env = "AOD_SEAL_KEY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub seal_key: Option<PathBuf>,

    #[command(flatten)]
    pub archive: ArchiveArguments,

    #[command(flatten)]
    pub tls: TlsArguments,

    #[command(flatten)]
    pub disk: DiskArguments,

    #[command(flatten)]
    pub traces: TraceArguments,
}

/// The archive of old events.
#[derive(Clone, Copy, Debug, Args)]
pub struct ArchiveArguments {
    /// Days that events of ended runs stay in the broker; the artifact store keeps older events, and queries read both.
    /// 0 keeps all events in the broker. The same for all gateways
    #[arg(long, env = "AOD_LOG_DAYS", value_name = "DAYS", default_value_t = 30,
          value_parser = clap::value_parser!(u16).range(0..=36_500), hide_env_values = true)]
    pub log_days: u16,
}

impl ArchiveArguments {
    /// `None`: events stay in the broker.
    pub fn age(self) -> Option<SignedDuration> {
        let hours = i64::from(self.log_days) * 24;
        (hours > 0).then(|| SignedDuration::from_hours(hours))
    }
}

/// The certificate of a gateway.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArguments {
    /// PEM file with the TLS certificate, for example from `aod certs`; the gateway reloads a changed file
    #[arg(
        long,
        env = "AOD_TLS_CERTIFICATE",
        value_name = "FILE",
        requires = "tls_key",
        hide_env_values = true
    )]
    pub tls_certificate: Option<PathBuf>,

    /// PEM file with the key of the certificate
    #[arg(
        long,
        env = "AOD_TLS_KEY",
        value_name = "FILE",
        requires = "tls_certificate",
        hide_env_values = true
    )]
    pub tls_key: Option<PathBuf>,
}

/// The reserved space on disks.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct DiskArguments {
    /// Space that AOD reserves on each disk for running trees; with less free space, no new roots start [default: a
    /// tenth of the disk, from 128 MiB to 1 GiB]
    #[arg(
        long,
        env = "AOD_DISK_RESERVE",
        value_name = "BYTES",
        hide_env_values = true
    )]
    pub disk_reserve: Option<u64>,
}

/// The export of traces.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceArguments {
    /// URL of an OTLP/HTTP receiver, `http://host:4318`; it receives a trace for each tree of runs
    #[arg(long, env = "AOD_OTLP", value_name = "URL", hide_env_values = true)]
    pub otlp: Option<String>,

    /// File with headers for the OTLP receiver, one `name=value` per line or between commas
    #[arg(
        long,
        env = "AOD_OTLP_HEADERS",
        value_name = "FILE",
        requires = "otlp",
        hide_env_values = true
    )]
    pub otlp_headers: Option<PathBuf>,

    /// Also export contents: arguments and outputs of runs, and model requests and answers if nodes store them
    #[arg(
        long,
        env = "AOD_OTLP_CONTENTS",
        value_parser = BoolishValueParser::new(),
        requires = "otlp",
        hide_env_values = true
    )]
    pub otlp_contents: bool,
}

/// The capacity of a node.
#[derive(Clone, Debug, Args)]
pub struct CapacityArguments {
    /// Maximum number of capsules that run concurrently [default: number of processors]
    #[arg(long, env = "AOD_SLOTS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), hide_env_values = true)]
    pub slots: Option<u32>,

    /// Pool that the node takes runs from; replaces the default (repeatable)
    #[arg(
        long = "pool",
        env = "AOD_POOL",
        value_name = "POOL",
        value_delimiter = ',',
        default_value = "any",
        hide_env_values = true
    )]
    pub pools: Vec<Pool>,

    #[command(flatten)]
    pub equipment: EquipmentArguments,

    /// Memory that runs can reserve before the node stops starting new roots; callees can exceed it [default: three
    /// quarters of the memory]
    #[arg(long, env = "AOD_MEMORY", value_name = "BYTES", hide_env_values = true)]
    pub memory: Option<u64>,

    /// Number of containers, including those that wait for callees, at which the node stops starting new roots; callees
    /// can exceed it [default: 16 per slot]
    #[arg(long, env = "AOD_CONTAINERS_MAX", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), hide_env_values = true)]
    pub containers_max: Option<u32>,

    #[command(flatten)]
    pub disk: DiskArguments,

    /// The container engine's socket
    #[arg(long, env = "AOD_DOCKER", value_name = "URL", default_value = DOCKER_DEFAULT, hide_env_values = true)]
    pub docker: String,

    /// File with credentials of private registries for builds, in the format of `docker login`
    #[arg(
        long,
        env = "AOD_REGISTRIES",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub registries: Option<PathBuf>,

    #[command(flatten)]
    pub policy: PolicyArguments,

    /// Store model requests and answers as artifacts, with redacted secrets; retention policies apply
    #[arg(
        long,
        env = "AOD_KEEP_MODEL_CONTENTS",
        value_parser = BoolishValueParser::new(),
        hide_env_values = true
    )]
    pub keep_model_contents: bool,
}

#[derive(Clone, Debug, Args)]
pub struct NodeArguments {
    #[command(flatten)]
    pub broker: BrokerArguments,

    #[command(flatten)]
    pub capacity: CapacityArguments,

    /// Directory for the node's id, its runs and the artifact cache; in a container, mount it at the same path as on
    /// the host [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,

    /// Name of the cluster, if several clusters share one Docker; the node does not touch containers or images of
    /// other clusters
    #[arg(
        long,
        env = "AOD_CLUSTER",
        value_name = "NAME",
        default_value = "aod",
        hide_env_values = true
    )]
    pub cluster: String,

    /// PEM file of the authority that signed the certificates of gateways and, without --nats-ca, of the broker
    #[arg(
        long,
        env = "AOD_CERTIFICATE_AUTHORITY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub certificate_authority: Option<PathBuf>,

    /// Name of this host in lists [default: its host name]
    #[arg(long, env = "AOD_HOST", value_name = "NAME", hide_env_values = true)]
    pub host: Option<String>,
}

#[derive(Clone, Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command"
)]
pub struct UpArguments {
    /// Directory for all data [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,

    /// Address of an existing broker, `nats://host:port` or `tls://host:port` [default: start a broker]
    #[arg(
        long,
        env = "AOD_NATS",
        value_name = "URL",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub nats: Vec<String>,

    /// File with the broker credentials for --nats: two lines, user and password; use nats-admin.creds
    #[arg(
        long,
        env = "AOD_NATS_CREDENTIALS",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub nats_credentials: Option<PathBuf>,

    /// Artifact store [default: a directory in the data directory; with --nats, the broker]
    #[arg(long, env = "AOD_STORE", value_name = "URL", hide_env_values = true)]
    pub store: Option<String>,

    /// Address to listen on; if the port is in use, `aod up` takes a free one
    #[arg(long, env = "AOD_LISTEN", value_name = "ADDR", default_value = LISTEN_DEFAULT, hide_env_values = true)]
    pub listen: SocketAddr,

    /// Accept requests without a token on the routes of agent-on-demand, an earlier program. Every program on this host
    /// can then start runs of the tenant `default` and read their outputs. --listen must be a loopback address
    #[arg(
        long,
        env = "AOD_OPEN_TO_AGENT_ON_DEMAND",
        value_parser = BoolishValueParser::new(),
        hide_env_values = true
    )]
    pub open_to_agent_on_demand: bool,

    #[command(flatten)]
    pub capacity: CapacityArguments,

    #[command(flatten)]
    pub archive: ArchiveArguments,

    #[command(flatten)]
    pub traces: TraceArguments,

    /// Start a data directory that was copied or moved, such as a restored backup, and continue its unfinished runs;
    /// needed only once
    #[arg(long)]
    pub restored: bool,

    /// Start in the background and return when ready; `aod down` stops it
    #[arg(long)]
    pub detach: bool,

    /// Set by `--detach` for the background process.
    #[arg(long, hide = true)]
    pub in_background: bool,
}
