//! Flags of `aod capsule`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::service::DOCKER_DEFAULT;
use super::{CallArguments, ConnectArguments, PolicyArguments};

#[derive(Clone, Debug, Subcommand)]
pub enum CapsuleCommand {
    /// Write the directory of a new capsule, with a test case that passes
    New(NewArguments),
    /// Check capsule directories without a gateway
    Validate(ValidateArguments),
    /// Build a capsule and run it here, without a cluster; nothing is left but its image
    Run(CapsuleRunArguments),
    /// Run the test cases of capsules here, without a cluster: tests/cases/NAME of each directory
    Test(CapsuleTestArguments),
    /// Check a capsule directory, have its image built and register it
    Build(BuildArguments),
    /// Build a capsule here and hand its image, with its contract, to a registry
    Push(PushArguments),
    /// Write the directory of a capsule whose image is in a registry: to build, run and test as any other
    Pull(PullArguments),
    /// List the registered capsules
    Ls(ConnectArguments),
    /// Show what a capsule takes, gives and may call: a registered one, or a directory
    Inspect(InspectArguments),
    /// Show which capsules may call which, and what speaks against it
    Graph(GraphArguments),
    /// Print the JSON Schema of a file of capsules, for editors
    Schema(SchemaArguments),
}

#[derive(Clone, Debug, Args)]
pub struct ValidateArguments {
    /// The directories
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,

    /// Take warnings for errors
    #[arg(long)]
    pub strict: bool,

    /// What models cost where the operator has other prices than the listed ones: the file of `aod node --models`
    #[arg(long, env = "AOD_MODELS", value_name = "FILE", hide_env_values = true)]
    pub models: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct BuildArguments {
    /// The capsule's directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Which nodes build it and take its runs; any unless given
    #[arg(long)]
    pub label: Option<String>,

    /// Let it call every capsule, whatever its tools.yaml says: for capsules written before there was one
    #[arg(long)]
    pub open_handoffs: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

/// The engine that speaks to registries, and what it may show them.
#[derive(Clone, Debug, Args)]
pub struct RegistryArguments {
    /// Credentials of registries, by their names: a file as docker login writes it [default: ~/.docker/config.json, if there]
    #[arg(
        long,
        env = "AOD_REGISTRIES",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub registries: Option<PathBuf>,

    /// The container engine's socket
    #[arg(long, env = "AOD_DOCKER", value_name = "URL", default_value = DOCKER_DEFAULT, hide_env_values = true)]
    pub docker: String,
}

#[derive(Clone, Debug, Args)]
pub struct PushArguments {
    /// The capsule's directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Where it goes, `registry/name:tag`
    #[arg(value_name = "REFERENCE")]
    pub reference: String,

    #[command(flatten)]
    pub registry: RegistryArguments,
}

#[derive(Clone, Debug, Args)]
pub struct PullArguments {
    /// What is pulled, `registry/name:tag`
    #[arg(value_name = "REFERENCE")]
    pub reference: String,

    /// The directory to write; it must not be there [default: the capsule's name]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,

    #[command(flatten)]
    pub registry: RegistryArguments,
}

#[derive(Clone, Debug, Args)]
pub struct CapsuleRunArguments {
    /// The capsule's directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    #[command(flatten)]
    pub call: CallArguments,

    /// Directory of a capsule that it may call, if that does not lie beside it; may be given again
    #[arg(long, value_name = "DIR")]
    pub with: Vec<PathBuf>,

    /// Keep the data directory, and say where it is: `aod up --data` looks into it
    #[arg(long)]
    pub keep: bool,

    /// The container engine's socket
    #[arg(long, env = "AOD_DOCKER", value_name = "URL", default_value = DOCKER_DEFAULT, hide_env_values = true)]
    pub docker: String,

    #[command(flatten)]
    pub policy: PolicyArguments,
}

#[derive(Clone, Debug, Args)]
pub struct CapsuleTestArguments {
    /// The capsules' directories
    #[arg(value_name = "DIR", default_value = ".")]
    pub directories: Vec<PathBuf>,

    /// Directory of a capsule that they may call, if that does not lie beside them; may be given again
    #[arg(long, value_name = "DIR")]
    pub with: Vec<PathBuf>,

    /// File for the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,

    /// The container engine's socket
    #[arg(long, env = "AOD_DOCKER", value_name = "URL", default_value = DOCKER_DEFAULT, hide_env_values = true)]
    pub docker: String,

    #[command(flatten)]
    pub policy: PolicyArguments,
}

#[derive(Clone, Debug, Args)]
pub struct NewArguments {
    /// The directory to make; its last part becomes the capsule's name
    #[arg(value_name = "NAME")]
    pub directory: PathBuf,

    /// What to begin with
    #[arg(long, value_enum, default_value_t)]
    pub template: Template,
}

/// What a new capsule begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Template {
    /// A shell script on Debian: no Python, nothing to install
    #[default]
    Plain,
    /// Python with the SDK
    Software,
    /// Python with the SDK, hands work to another capsule
    Orchestrator,
    /// Python with the SDK: a model with a function as its tool
    Agent,
    /// Python with the SDK: a model with the tools of an MCP server
    Mcp,
}

#[derive(Clone, Debug, Args)]
pub struct InspectArguments {
    /// A directory, or the name, title or alias of a registered capsule
    #[arg(value_name = "NAME|DIR")]
    pub capsule: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct GraphArguments {
    /// The capsules' directories; those that they may call are looked for beside them
    #[arg(value_name = "DIR", default_value = ".")]
    pub directories: Vec<PathBuf>,

    /// Directory of a capsule that they may call, if that does not lie beside them; may be given again
    #[arg(long, value_name = "DIR")]
    pub with: Vec<PathBuf>,

    /// How the graph is drawn
    #[arg(long, value_enum, default_value_t)]
    pub format: GraphFormat,
}

/// How a graph is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GraphFormat {
    /// Lines for people
    #[default]
    Text,
    /// A picture
    Svg,
}

#[derive(Clone, Debug, Args)]
pub struct SchemaArguments {
    /// Which file
    #[arg(value_enum)]
    pub file: SchemaFile,
}

/// A file whose form is described by a JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SchemaFile {
    /// agent.yaml
    Agent,
    /// tools.yaml
    Tools,
    /// schema.json
    Schema,
}
