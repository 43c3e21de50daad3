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
mod service;
mod tokens;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use self::audit::{AuditCommand, ExportArguments, VerifyArguments};
pub use self::capsule::{
    BuildArguments, CapsuleCommand, CapsuleRunArguments, CapsuleTestArguments, GraphArguments,
    GraphFormat, InspectArguments, NewArguments, PullArguments, PushArguments, RegistryArguments,
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
pub use self::service::{
    ArchiveArguments, BrokerArguments, CapacityArguments, DiskArguments, GatewayArguments,
    NodeArguments, TlsArguments, TraceArguments, UpArguments,
};
pub use self::tokens::{CreateTokenArguments, RevokeTokenArguments, TokensCommand};
use crate::console::Format;
use crate::logging::LogFormat;

/// Capsules call capsules across hosts; every fact is an event in one durable log.
#[derive(Debug, Parser)]
#[command(name = "aod", version, propagate_version = true, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,

    /// How data on stdout looks; json is a contract, text is not
    #[arg(
        long,
        global = true,
        env = "AOD_OUTPUT",
        value_enum,
        default_value_t,
        hide_env_values = true
    )]
    pub output: Format,

    /// What to log to stderr: `info`, `debug`, `aod_node=debug,warn` and so on
    #[arg(
        long,
        global = true,
        env = "AOD_LOG",
        value_name = "FILTER",
        hide_env_values = true
    )]
    pub log: Option<String>,

    /// How log lines look
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

/// What `aod` can be asked to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start everything on this machine: broker, gateway and node
    Up(UpArguments),
    /// Stop what `aod up` started
    Down(DownArguments),
    /// Run a gateway of a cluster
    Gateway(GatewayArguments),
    /// Run a node of a cluster: it takes capsules on for this host's Docker
    Node(NodeArguments),
    /// Make the credentials of a cluster; those that exist are kept
    Credentials(CredentialsArguments),
    /// Make a private authority for a cluster and certificates by it, or issue those that are there anew
    Certs(CertsArguments),
    /// Run a capsule and wait for its result
    Run(RunArguments),
    /// Look at runs, or cancel one
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Look for events in the whole log, or follow it
    #[command(subcommand)]
    Events(EventsCommand),
    /// Look at runs that were given up, launch one anew or take it off the list
    #[command(subcommand, name = "deadletters")]
    DeadLetters(DeadLettersCommand),
    /// Take a tree of runs out of the cluster, and check it anywhere
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Write, check, run, test, build and list capsules
    #[command(subcommand)]
    Capsule(CapsuleCommand),
    /// Say how many runs of a kind go at once, how often they begin, and in what shares
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Give people and programs tokens, each for one tenant and with one role
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Say how long logs, files and images are kept once the trees that name them have ended
    #[command(subcommand)]
    Retention(RetentionCommand),
    /// Hold trees of runs: nothing that they name is collected
    #[command(subcommand)]
    Hold(HoldCommand),
    /// Collect artifacts that nothing names, or that policies let go
    Gc(CollectArguments),
    /// Look at nodes, or take one out of work
    #[command(subcommand)]
    Nodes(NodesCommand),
    /// Check this machine and the cluster, and say what to do about what is found
    Doctor(DoctorArguments),
    /// Print completions for a shell
    Completions(CompletionsArguments),
}

impl Command {
    /// Whether it starts everything that it needs for itself alone.
    pub const fn is_private(&self) -> bool {
        matches!(
            self,
            Self::Capsule(CapsuleCommand::Run(_) | CapsuleCommand::Test(_))
        )
    }

    /// Whether it runs on until it is stopped.
    pub const fn is_service(&self) -> bool {
        matches!(self, Self::Up(_) | Self::Gateway(_) | Self::Node(_))
    }
}

/// Where the gateway is.
#[derive(Clone, Debug, Default, Args)]
pub struct ConnectArguments {
    /// Address of a gateway; that of the running `aod up` unless given
    #[arg(long, env = "AOD_URL", value_name = "URL", hide_env_values = true)]
    pub url: Option<String>,

    /// File with the gateway's token
    #[arg(
        long,
        env = "AOD_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,

    /// Tenant to act for, with a token that is for all of them
    // Every command has it, few need it: the guide tells of it.
    #[arg(
        long = "acting-for",
        env = "AOD_TENANT",
        value_name = "TENANT",
        hide = true
    )]
    pub acting_for: Option<String>,

    /// PEM file of the authority that signed the gateway's certificate, instead of the system's
    #[arg(
        long,
        env = "AOD_CERTIFICATE_AUTHORITY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub certificate_authority: Option<PathBuf>,

    /// Data directory of the `aod up` to talk to [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct DownArguments {
    /// Data directory of the `aod up` to stop [default: ~/.local/share/aod]
    #[arg(long, env = "AOD_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,
}

/// What a capsule is called with, and where its files go.
#[derive(Clone, Debug, Default, Args)]
pub struct CallArguments {
    /// An argument: `key=value`, or `key=@path` to hand a file over (`key=@@text` for a text that begins with @).
    /// A value is read as JSON where it is JSON and the schema does not ask for a text. Given again, it is a list
    #[arg(short, long = "input", value_name = "KEY=VALUE")]
    pub inputs: Vec<String>,

    /// All arguments as a JSON object: the text itself, @FILE, or @- for stdin; --input adds to it
    #[arg(long, value_name = "JSON")]
    pub json: Option<String>,

    /// Directory for the files that the capsule makes
    #[arg(short, long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// Name, title or alias of a registered capsule
    pub capsule: String,

    #[command(flatten)]
    pub call: CallArguments,

    /// Which nodes may take the run; the capsule's own label unless given
    #[arg(long)]
    pub label: Option<String>,

    #[command(flatten)]
    pub require: RequireArguments,

    /// A label of the run itself, to find it by: `team=a`; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = labels::pair)]
    pub labels: Vec<(String, String)>,

    /// Who goes first of runs that wait for admission, from -100 to 100
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-100..=100))]
    pub priority: i8,

    #[command(flatten)]
    pub limits: LimitArguments,

    /// Tries again so often when the capsule fails
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub retries: u32,

    /// Tries again so often when the running time is over
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub time_retries: u32,

    /// Print the run's id and do not wait
    #[arg(long)]
    pub detach: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Subcommand)]
pub enum RunsCommand {
    /// List runs, the latest first
    Ls(RunsLsArguments),
    /// Show one run with everything about it
    Show(RunArgument),
    /// Print what a run's container wrote
    Logs(FollowArguments),
    /// Print the events of a run
    Events(FollowArguments),
    /// Draw a run with everything that it called
    Tree(RunArgument),
    /// Draw the same as it stood at an event
    At(AtArguments),
    /// Rebuild a run's whole tree from the log and compare it with the gateway's lists
    Replay(RunArgument),
    /// Tell in what two runs differ, with everything that each called
    Diff(DiffArguments),
    /// Run it again as it was recorded, taking over what is unchanged and succeeded
    Rerun(RerunArguments),
    /// End a run, with everything that it called
    Cancel(CancelArguments),
}

#[derive(Clone, Debug, Args)]
pub struct RunsLsArguments {
    /// Only runs in this state; may be given again
    #[arg(long, value_name = "STATE")]
    pub state: Vec<String>,

    /// Only runs of this capsule
    #[arg(long, value_name = "NAME")]
    pub capsule: Option<String>,

    /// Only runs that nobody called
    #[arg(long)]
    pub roots: bool,

    /// Runs of this page
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,

    /// Where the page before ended
    #[arg(long)]
    pub cursor: Option<String>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct RunArgument {
    /// Id of the run
    pub run: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct FollowArguments {
    /// Id of the run
    pub run: String,

    /// Go on until the run ends
    #[arg(short, long)]
    pub follow: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct CancelArguments {
    /// Id of the run
    pub run: String,

    /// Why, for people
    #[arg(long, default_value = "")]
    pub reason: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Subcommand)]
pub enum NodesCommand {
    /// List the nodes that are there
    Ls(ConnectArguments),
    /// Have a node take no new work; what it has goes on
    Drain(DrainArguments),
}

#[derive(Clone, Debug, Args)]
pub struct DrainArguments {
    /// Id of the node, or its host if that has only one
    pub node: String,

    /// Let it take work again
    #[arg(long)]
    pub resume: bool,

    /// Hand back to other nodes what has not ended then; without it, all that runs goes on
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

    /// Directory with the secrets of a node here, to look at as well
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
