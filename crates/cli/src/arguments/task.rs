//! Flags of `aod task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ConnectArguments;

#[derive(Clone, Debug, Subcommand)]
pub enum TaskCommand {
    /// Run a workflow, and print its outputs
    Run(Box<RunTaskArguments>),
    /// Check workflow files, without a gateway
    Validate(ValidateTaskArguments),
    /// Print the JSON Schema of workflow files, for editors
    Schema,
}

#[derive(Clone, Debug, Args)]
pub struct ValidateTaskArguments {
    /// Workflow files in YAML
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Treat warnings as errors, and require the key `filename` of each output of type `file`
    #[arg(long)]
    pub strict: bool,
}

#[derive(Clone, Debug, Args)]
pub struct RunTaskArguments {
    /// Workflow file in YAML
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Input of the workflow (repeatable)
    #[arg(short, long = "input", value_name = "NAME=VALUE")]
    pub inputs: Vec<String>,

    /// JSON file with an object of inputs; --input overrides it
    #[arg(long = "inputs", value_name = "FILE")]
    pub inputs_file: Option<PathBuf>,

    /// Base image of the sandbox [default: the image of the first AI tool, else debian:bookworm-slim]
    #[arg(long)]
    pub image: Option<String>,

    /// Print the id of the run without waiting for its end
    #[arg(long)]
    pub detach: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
