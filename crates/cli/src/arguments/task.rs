//! Flags of `aod task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum TaskCommand {
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
