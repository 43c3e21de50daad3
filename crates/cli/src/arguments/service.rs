//! Flags of the programs that run on: `aod up`, `aod gateway`, `aod node`.

use std::net::SocketAddr;
use std::path::PathBuf;

use aod_domain::subject::Label;
use clap::Args;
use clap::builder::BoolishValueParser;
use jiff::SignedDuration;

use super::{EquipmentArguments, PolicyArguments};

/// Where Docker listens unless told otherwise.
pub(super) const DOCKER_DEFAULT: &str = "unix:///var/run/docker.sock";

/// Where `aod up` listens if that is free.
const LISTEN_DEFAULT: &str = "127.0.0.1:8080";

/// What all programs of a cluster need to reach the broker and the artifacts.
#[derive(Clone, Debug, Args)]
pub struct BrokerArguments {
    /// Address of the broker, `nats://host:port`; several of one cluster with commas
    #[arg(
        long,
        env = "AOD_NATS",
        value_name = "URL",
        value_delimiter = ',',
        required = true,
        hide_env_values = true
    )]
    pub nats: Vec<String>,

    /// File of two lines, user and password, as `aod credentials` makes it
    #[arg(
        long,
        env = "AOD_NATS_CREDENTIALS",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub nats_credentials: Option<PathBuf>,

    /// PEM file of the authorities that sign the broker's certificates, instead of the system's
    #[arg(long, env = "AOD_NATS_CA", value_name = "FILE", hide_env_values = true)]
    pub nats_ca: Option<PathBuf>,

    /// The broker's monitoring, `http://host:port`: there is asked whether it syncs each write
    #[arg(
        long,
        env = "AOD_NATS_MONITORING",
        value_name = "URL",
        hide_env_values = true
    )]
    pub nats_monitoring: Option<String>,

    /// Copies of each stream that this program makes on a broker of several servers; what is there keeps its own
    #[arg(long, env = "AOD_NATS_REPLICAS", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=5), hide_env_values = true)]
    pub nats_replicas: u8,

    /// Where artifacts are: `jetstream` (in the broker), `file:///path`, `s3://bucket?endpoint=…`, `gs://…`, `az://…`
    #[arg(
        long,
        env = "AOD_STORE",
        value_name = "URL",
        default_value = "jetstream",
        hide_env_values = true
    )]
    pub store: String,

    /// Most that the local copies of artifacts may take, in bytes
    #[arg(long, env = "AOD_CACHE_BYTES", value_name = "BYTES", default_value_t = 20 << 30, hide_env_values = true)]
    pub cache_bytes: u64,

    /// How long a run may show no sign of life before another node takes it over; the same in the whole cluster
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

    /// How nodes reach this gateway; the address it listens on unless given
    #[arg(
        long,
        env = "AOD_PUBLIC_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    pub public_url: Option<String>,

    /// File with the token that people show; without one only programs of this host may use the gateway
    #[arg(
        long,
        env = "AOD_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,

    /// Directory for lists and copies that can be made again, and for the seal key [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,

    /// File with the key that seals ended trees, the same for all gateways, as `aod credentials` makes it; unless given
    /// seal.key in the data directory, made once
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

/// What becomes of old events.
#[derive(Clone, Copy, Debug, Args)]
pub struct ArchiveArguments {
    /// Days that events of ended runs stay in the broker before only the artifact store has them, as the archive,
    /// which is read as well; 0 keeps all in the broker. The same for all gateways
    #[arg(long, env = "AOD_LOG_DAYS", value_name = "DAYS", default_value_t = 30,
          value_parser = clap::value_parser!(u16).range(0..=36_500), hide_env_values = true)]
    pub log_days: u16,
}

impl ArchiveArguments {
    /// None for ever.
    pub fn age(self) -> Option<SignedDuration> {
        let hours = i64::from(self.log_days) * 24;
        (hours > 0).then(|| SignedDuration::from_hours(hours))
    }
}

/// What a gateway shows to whoever connects.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArguments {
    /// Speak TLS with this certificate, a PEM file as `aod certs` makes it; one that changes is read again
    #[arg(
        long,
        env = "AOD_TLS_CERTIFICATE",
        value_name = "FILE",
        requires = "tls_key",
        hide_env_values = true
    )]
    pub tls_certificate: Option<PathBuf>,

    /// PEM file of its key
    #[arg(
        long,
        env = "AOD_TLS_KEY",
        value_name = "FILE",
        requires = "tls_certificate",
        hide_env_values = true
    )]
    pub tls_key: Option<PathBuf>,
}

/// What is kept of the disks.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct DiskArguments {
    /// Room on each disk that is kept for trees under way: with less, no new tree begins; a tenth of the disk and
    /// 1 GiB at the most unless given
    #[arg(
        long,
        env = "AOD_DISK_RESERVE",
        value_name = "BYTES",
        hide_env_values = true
    )]
    pub disk_reserve: Option<u64>,
}

/// Where traces go.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceArguments {
    /// Send a trace of each tree of runs to this receiver of OTLP over HTTP, `http://host:4318`
    #[arg(long, env = "AOD_OTLP", value_name = "URL", hide_env_values = true)]
    pub otlp: Option<String>,

    /// Headers for that receiver: a file with a `name=value` on each line
    #[arg(
        long,
        env = "AOD_OTLP_HEADERS",
        value_name = "FILE",
        requires = "otlp",
        hide_env_values = true
    )]
    pub otlp_headers: Option<PathBuf>,

    /// Send contents too: arguments and outputs of runs, and what models were asked and answered where nodes keep it
    #[arg(
        long,
        env = "AOD_OTLP_CONTENTS",
        value_parser = BoolishValueParser::new(),
        requires = "otlp",
        hide_env_values = true
    )]
    pub otlp_contents: bool,
}

/// What a node may take on.
#[derive(Clone, Debug, Args)]
pub struct CapacityArguments {
    /// Capsules that compute at one time; the engine's processors unless given
    #[arg(long, env = "AOD_SLOTS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), hide_env_values = true)]
    pub slots: Option<u32>,

    /// Which runs to take; may be given again. Replaces `any`
    #[arg(
        long = "label",
        env = "AOD_LABEL",
        value_name = "LABEL",
        value_delimiter = ',',
        default_value = "any",
        hide_env_values = true
    )]
    pub labels: Vec<Label>,

    #[command(flatten)]
    pub equipment: EquipmentArguments,

    /// Memory that capsules may reserve before no new tree of runs begins; three quarters of the engine's unless given
    #[arg(long, env = "AOD_MEMORY", value_name = "BYTES", hide_env_values = true)]
    pub memory: Option<u64>,

    /// Containers, waiting ones included, above which no new tree of runs begins; 16 a slot unless given
    #[arg(long, env = "AOD_CONTAINERS_MAX", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), hide_env_values = true)]
    pub containers_max: Option<u32>,

    #[command(flatten)]
    pub disk: DiskArguments,

    /// The container engine's socket
    #[arg(long, env = "AOD_DOCKER", value_name = "URL", default_value = DOCKER_DEFAULT, hide_env_values = true)]
    pub docker: String,

    /// Credentials of private registries, which builds pull from: a file as docker login writes it
    #[arg(
        long,
        env = "AOD_REGISTRIES",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub registries: Option<PathBuf>,

    #[command(flatten)]
    pub policy: PolicyArguments,

    /// Keep what goes to models and what they answer, as artifacts that only a retention policy lets go; secrets are taken out
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

    /// Directory for the node's id, what runs work on, and copies; in a container at the same path inside and out
    /// [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,

    /// Name of the cluster on this host's engine: containers of others are not touched
    #[arg(
        long,
        env = "AOD_CLUSTER",
        value_name = "NAME",
        default_value = "aod",
        hide_env_values = true
    )]
    pub cluster: String,

    /// PEM file of the authority that signed the certificates of gateways, and of the broker unless --nats-ca
    /// says otherwise
    #[arg(
        long,
        env = "AOD_CERTIFICATE_AUTHORITY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub certificate_authority: Option<PathBuf>,

    /// The name that people know this host by [default: its host name]
    #[arg(long, env = "AOD_HOST", value_name = "NAME", hide_env_values = true)]
    pub host: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct UpArguments {
    /// Directory for everything that must survive [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,

    /// A broker to use instead of one of its own, `nats://host:port`
    #[arg(
        long,
        env = "AOD_NATS",
        value_name = "URL",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub nats: Vec<String>,

    /// User and password for the broker of --nats, a file of two lines: the admin's, since this is gateway and node
    #[arg(
        long,
        env = "AOD_NATS_CREDENTIALS",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub nats_credentials: Option<PathBuf>,

    /// Where artifacts are; a directory below the data directory unless given, with --nats in the broker
    #[arg(long, env = "AOD_STORE", value_name = "URL", hide_env_values = true)]
    pub store: Option<String>,

    /// Address to listen on; a free port is taken where this one is busy
    #[arg(long, env = "AOD_LISTEN", value_name = "ADDR", default_value = LISTEN_DEFAULT, hide_env_values = true)]
    pub listen: SocketAddr,

    #[command(flatten)]
    pub capacity: CapacityArguments,

    #[command(flatten)]
    pub archive: ArchiveArguments,

    #[command(flatten)]
    pub traces: TraceArguments,

    /// Go on in the background, return when it is ready; `aod down` stops it
    #[arg(long)]
    pub detach: bool,

    /// Set by `--detach` for the process in the background.
    #[arg(long, hide = true)]
    pub in_background: bool,
}
