//! Flags of `aod capsule`.

use std::path::PathBuf;

use aod_domain::capsule::Openness;
use clap::{Args, Subcommand};

use super::service::DOCKER_DEFAULT;
use super::{CallArguments, ConnectArguments, PolicyArguments};
use crate::completion;

#[derive(Clone, Debug, Subcommand)]
pub enum CapsuleCommand {
    /// Create the directory of a new capsule, with a passing test case
    New(NewArguments),
    /// Check capsule directories, without a gateway
    Validate(ValidateArguments),
    /// Build and run a capsule without a running cluster: the command starts a temporary private one, and keeps only
    /// the image
    Run(CapsuleRunArguments),
    /// Run the test cases of capsules (tests/cases/NAME) without a running cluster: the command starts a temporary
    /// private one
    Test(CapsuleTestArguments),
    /// Check a capsule directory, build its image on a node and register the capsule
    Build(BuildArguments),
    /// Build a capsule on this machine, and push its image with schema.json, agent.yaml and tools.yaml to a registry or
    /// into a directory
    Push(PushArguments),
    /// Create a capsule directory from an image in a registry or in a directory
    Pull(PullArguments),
    /// List the registered capsules
    Ls(ConnectArguments),
    /// Remove a registered capsule; its recorded runs remain
    Rm(RmArguments),
    /// Show inputs, outputs and permitted callees of a registered capsule or a directory
    Inspect(InspectArguments),
    /// Show the permitted calls between capsules, with cycles and calls that cannot work
    Graph(GraphArguments),
    /// Print the JSON Schema of a capsule file, for editors
    Schema(SchemaArguments),
}

#[derive(Clone, Debug, Args)]
pub struct ValidateArguments {
    /// Capsule directories
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,

    /// Treat warnings as errors
    #[arg(long)]
    pub strict: bool,

    /// YAML file with model providers and prices, as for `aod node --models`
    #[arg(long, env = "AOD_MODELS", value_name = "FILE", hide_env_values = true)]
    pub models: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct BuildArguments {
    /// Capsule directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Pool of nodes that build the capsule and take its runs [default: any]
    #[arg(long)]
    pub pool: Option<String>,

    /// Build on the images to which the references of the Dockerfile refer now, pulled if a registry has newer ones,
    /// instead of the base images of the registered version
    #[arg(long)]
    pub update_bases: bool,

    #[command(flatten)]
    pub openness: OpennessArguments,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

/// Permissions for capsules that were written before AOD had the files that list them.
#[derive(Clone, Copy, Debug, Args)]
pub struct OpennessArguments {
    /// Permit calls to all capsules, not only to those in tools.yaml; for capsules that were written before AOD had
    /// tools.yaml
    #[arg(long)]
    pub open_handoffs: bool,

    /// Permit connections to all hosts that the operator of the node permits, not only to those that agent.yaml lists
    /// under egress; for capsules that were written before AOD had egress rules
    #[arg(long)]
    pub open_egress: bool,
}

impl OpennessArguments {
    pub(crate) fn openness(self) -> Openness {
        Openness {
            handoffs: self.open_handoffs,
            egress: self.open_egress,
        }
    }
}

/// The container engine, and its credentials for registries.
#[derive(Clone, Debug, Args)]
pub struct RegistryArguments {
    /// File with registry credentials, in the format of `docker login` [default: ~/.docker/config.json, if it exists]
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
    /// Capsule directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Target image: `registry/name:tag` in a registry, or `oci:PATH[:TAG]` in a directory, which becomes an OCI image
    /// layout [default tag: latest]
    #[arg(value_name = "REFERENCE")]
    pub reference: String,

    #[command(flatten)]
    pub registry: RegistryArguments,
}

#[derive(Clone, Debug, Args)]
pub struct PullArguments {
    /// Image to pull: `registry/name:tag` from a registry, or `oci:PATH[:TAG]` from an OCI image layout in a directory,
    /// without TAG its only image
    #[arg(value_name = "REFERENCE")]
    pub reference: String,

    /// Directory to create; it must not exist [default: the capsule's name]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,

    #[command(flatten)]
    pub registry: RegistryArguments,
}

#[derive(Clone, Debug, Args)]
pub struct CapsuleRunArguments {
    /// Capsule directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    #[command(flatten)]
    pub call: CallArguments,

    /// Directory of a callee, if it is not a sibling of the capsule's directory (repeatable)
    #[arg(long, value_name = "DIR")]
    pub with: Vec<PathBuf>,

    #[command(flatten)]
    pub openness: OpennessArguments,

    /// Keep the data directory for `aod up --data`, and print its path
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
    /// Capsule directories
    #[arg(value_name = "DIR", default_value = ".")]
    pub directories: Vec<PathBuf>,

    /// Directory of a callee, if it is not a sibling of the capsule directories (repeatable)
    #[arg(long, value_name = "DIR")]
    pub with: Vec<PathBuf>,

    #[command(flatten)]
    pub openness: OpennessArguments,

    /// File for the results, as JUnit XML
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
    /// Directory to create; its last part is the capsule's name
    #[arg(value_name = "NAME")]
    pub directory: PathBuf,

    /// Template for the new capsule
    #[arg(long, value_enum, default_value_t)]
    pub template: Template,
}

/// A template for a new capsule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Template {
    /// A shell script on Debian, without Python or dependencies
    #[default]
    Plain,
    /// Python with the SDK
    Software,
    /// Python with the SDK; calls another capsule
    Orchestrator,
    /// Python with the SDK: a model with a function as its tool
    Agent,
    /// Python with the SDK: a model with the tools of an MCP server
    Mcp,
}

#[derive(Clone, Debug, Args)]
pub struct RmArguments {
    /// Name, title or alias of the registered capsule
    #[arg(add = completion::capsules())]
    pub name: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct InspectArguments {
    /// A directory, or the name, title or alias of a registered capsule
    #[arg(value_name = "NAME|DIR")]
    pub capsule: String,

    /// Show the layers of the image of a registered capsule: sizes, and which other capsules have them
    #[arg(long)]
    pub layers: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct GraphArguments {
    /// Capsule directories; the command also searches their sibling directories for callees
    #[arg(value_name = "DIR", default_value = ".")]
    pub directories: Vec<PathBuf>,

    /// Directory of a callee, if it is not a sibling of the capsule directories (repeatable)
    #[arg(long, value_name = "DIR")]
    pub with: Vec<PathBuf>,

    /// Draw the graph as an SVG image
    #[arg(long)]
    pub svg: bool,
}

#[derive(Clone, Debug, Args)]
pub struct SchemaArguments {
    /// Capsule file
    #[arg(value_enum)]
    pub file: SchemaFile,
}

/// A capsule file with a JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SchemaFile {
    /// agent.yaml
    Agent,
    /// tools.yaml
    Tools,
    /// schema.json
    Schema,
}
