//! The command line: every flag, with its environment variable and default.

mod audit;
mod capsule;
mod certificates;
mod dead_letters;
mod events;
mod history;
mod labels;
mod limits;
mod placement;
mod policy;
mod retention;
mod rules;
mod runs;
mod service;
mod task;
mod time;
mod tokens;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use self::audit::{AuditCommand, ExportArguments, VerifyArguments};
pub use self::capsule::{
    BuildArguments, CapsuleCommand, CapsuleRunArguments, CapsuleTestArguments, GraphArguments,
    InspectArguments, NewArguments, PullArguments, PushArguments, RegistryArguments, RmArguments,
    SchemaArguments, SchemaFile, Template, ValidateArguments,
};
pub use self::certificates::{CertsArguments, CredentialsArguments};
pub use self::dead_letters::{DeadLettersCommand, DeadLettersLsArguments};
pub use self::events::{EventsCommand, QueryArguments, SelectionArguments, TailArguments};
pub use self::history::{AtArguments, DiffArguments, RerunArguments};
pub use self::limits::LimitArguments;
pub use self::placement::{EquipmentArguments, RequireArguments};
pub use self::policy::PolicyArguments;
pub use self::retention::{
    CollectArguments, HoldCommand, PolicyArgument, RetentionCommand, SetHoldArguments,
    SetPolicyArguments,
};
pub use self::rules::{RuleArgument, RulesCommand, SetRuleArguments};
pub use self::runs::{
    CancelArguments, FilesArguments, FollowArguments, LogsArguments, RunArgument, RunsCommand,
    RunsLsArguments, WaitArguments,
};
pub use self::service::{
    ArchiveArguments, BrokerArguments, CapacityArguments, DiskArguments, GatewayArguments,
    NodeArguments, TlsArguments, TraceArguments, UpArguments,
};
pub use self::task::{RunTaskArguments, TaskCommand, ValidateTaskArguments};
pub use self::tokens::{CreateTokenArguments, RevokeTokenArguments, TokensCommand};
use crate::completion;
use crate::console::Format;
use crate::logging::LogFormat;

/// Run capsules in containers across hosts, and record each run in one durable log of events
///
/// A capsule is a directory that builds into an image for one purpose. A run is one execution of a capsule. A capsule can
/// call other capsules: a root is a run without a caller, and a tree is a root and every run below it.
#[derive(Debug, Parser)]
#[command(name = "aod", version, propagate_version = true, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,

    /// Format of data on stdout; `json` is stable, `text` can change with each version
    #[arg(
        long,
        global = true,
        env = "AOD_FORMAT",
        value_enum,
        default_value_t,
        hide_env_values = true
    )]
    pub format: Format,

    /// Filter for logs on stderr: `info`, `debug`, `aod_node=debug,warn`
    #[arg(
        long,
        global = true,
        env = "AOD_LOG",
        value_name = "FILTER",
        hide_env_values = true
    )]
    pub log: Option<String>,

    /// Format of log lines
    #[arg(
        long,
        global = true,
        env = "AOD_LOG_FORMAT",
        value_enum,
        default_value_t,
        hide_env_values = true
    )]
    pub log_format: LogFormat,
}

/// The subcommands of `aod`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a broker, a gateway and a node on this machine
    Up(UpArguments),
    /// Stop a running `aod up`
    Down(DownArguments),
    /// Copy the data directory of `aod up` to a new directory, also while it runs
    Backup(BackupArguments),
    /// Run a gateway of a cluster
    Gateway(GatewayArguments),
    /// Run a node of a cluster: it runs capsules with Docker on this host
    Node(NodeArguments),
    /// Create the missing credentials of a cluster, and update the rights of its broker users
    Credentials(CredentialsArguments),
    /// Create a private certificate authority and certificates for a cluster, or renew existing ones
    Certs(CertsArguments),
    /// Run a capsule and wait for its result
    Run(RunArguments),
    /// List, inspect, compare, rerun or cancel runs
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Query the log of events, or follow it
    #[command(subcommand)]
    Events(EventsCommand),
    /// List, inspect, requeue or purge dead-lettered runs
    #[command(subcommand, name = "deadletters")]
    DeadLetters(DeadLettersCommand),
    /// Export a tree of runs as a bundle, and verify bundles without the cluster
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Create, check, run, test, build and list capsules
    #[command(subcommand)]
    Capsule(CapsuleCommand),
    /// Check workflow files: YAML files that list the steps (AI tools and commands) of a task
    #[command(subcommand)]
    Task(TaskCommand),
    /// Manage flow-control rules: maximum concurrency, rate and shares of runs
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Manage access tokens and their roles
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Manage retention policies: how long AOD keeps logs, files and images of ended trees
    #[command(subcommand)]
    Retention(RetentionCommand),
    /// Manage holds: AOD deletes no artifact of a held tree
    #[command(subcommand)]
    Hold(HoldCommand),
    /// Delete artifacts that no event refers to, and artifacts whose retention time has expired
    Gc(CollectArguments),
    /// List nodes, drain a node or resume it
    #[command(subcommand)]
    Nodes(NodesCommand),
    /// Check this machine and the cluster, and suggest fixes
    Doctor(DoctorArguments),
    /// Print the script for shell completion: `source <(aod completions bash)`
    Completions(CompletionsArguments),
}

impl Command {
    /// Whether the command starts a private cluster for itself.
    pub const fn is_private(&self) -> bool {
        matches!(
            self,
            Self::Capsule(CapsuleCommand::Run(_) | CapsuleCommand::Test(_))
        )
    }

    /// Whether the command runs until a signal stops it.
    pub const fn is_service(&self) -> bool {
        matches!(self, Self::Up(_) | Self::Gateway(_) | Self::Node(_))
    }
}

/// The gateway to connect to.
#[derive(Clone, Debug, Default, Args)]
pub struct ConnectArguments {
    /// Address of a gateway [default: the running `aod up`]
    #[arg(long, env = "AOD_URL", value_name = "URL", hide_env_values = true)]
    pub url: Option<String>,

    /// File with the access token for the gateway
    #[arg(
        long,
        env = "AOD_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,

    /// Tenant to act for (tokens that are valid for all tenants)
    // Hidden, because every command has this flag and few need it: docs/guide/tenants.md describes it.
    #[arg(
        long = "acting-for",
        env = "AOD_TENANT",
        value_name = "TENANT",
        hide = true
    )]
    pub acting_for: Option<String>,

    /// PEM file of the authority that signed the gateway's certificate [default: the system's authorities]
    #[arg(
        long,
        env = "AOD_CERTIFICATE_AUTHORITY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub certificate_authority: Option<PathBuf>,

    /// Data directory of the `aod up` to connect to [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct DownArguments {
    /// Data directory of the `aod up` to stop [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct BackupArguments {
    /// Directory to create for the backup
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Data directory of the `aod up` to back up [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,
}

/// The arguments of a call, and the directory for its output files.
#[derive(Clone, Debug, Default, Args)]
pub struct CallArguments {
    /// Argument (repeatable): `key=value`; `key=@path` for a file; `key=@@text` for a text that starts with @. The
    /// value is a text, or JSON if the schema permits no text for the key. Repeat a key to pass a list
    #[arg(short, long = "input", value_name = "KEY=VALUE")]
    pub inputs: Vec<String>,

    /// All arguments as a JSON object: inline, @FILE, or @- for stdin; --input adds to them
    #[arg(long, value_name = "JSON")]
    pub json: Option<String>,

    /// Directory for the output files
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// Name, title or alias of a registered capsule
    #[arg(add = completion::capsules())]
    pub capsule: String,

    #[command(flatten)]
    pub call: CallArguments,

    /// Pool of nodes for the run [default: the capsule's pool]
    #[arg(long)]
    pub pool: Option<String>,

    #[command(flatten)]
    pub require: RequireArguments,

    /// Label of the run: `team=a` (repeatable)
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = labels::pair)]
    pub labels: Vec<(String, String)>,

    /// Priority among runs that wait for admission, from -100 to 100; AOD admits the highest first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-100..=100))]
    pub priority: i8,

    #[command(flatten)]
    pub limits: LimitArguments,

    /// Maximum retries after a capsule failure
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub retries: u32,

    /// Maximum retries after a timeout of the capsule (--timeout, --heartbeat-timeout)
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub time_retries: u32,

    /// Key of the request: a repeated command with the same key joins the same run [default: a new key]
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,

    /// Print the run's id and return without waiting
    #[arg(long)]
    pub detach: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Subcommand)]
pub enum NodesCommand {
    /// List the nodes that are online
    Ls(ConnectArguments),
    /// Drain a node: it takes no new runs, and its current runs continue
    Drain(DrainArguments),
}

#[derive(Clone, Debug, Args)]
pub struct DrainArguments {
    /// Id of the node, or its host name if the host has only one node
    pub node: String,

    /// Resume the node: it takes runs again
    #[arg(long)]
    pub resume: bool,

    /// Maximum time for the current runs; then the node returns them to the queue [default: no limit]
    #[arg(long, value_name = "SECONDS", conflicts_with = "resume")]
    pub within: Option<u32>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct DoctorArguments {
    /// The container engine's socket
    #[arg(long, env = "AOD_DOCKER", value_name = "URL", default_value = service::DOCKER_DEFAULT, hide_env_values = true)]
    pub docker: String,

    /// Directory with the secrets of a node; `doctor` also checks these files
    #[arg(long, env = "AOD_SECRETS", value_name = "DIR", hide_env_values = true)]
    pub secrets: Option<PathBuf>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct CompletionsArguments {
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests;
