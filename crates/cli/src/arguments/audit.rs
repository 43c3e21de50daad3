//! Flags of `aod audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ConnectArguments;
use crate::completion;

#[derive(Clone, Debug, Subcommand)]
pub enum AuditCommand {
    /// Export a tree with its files as a bundle
    Export(ExportArguments),
    /// Verify a bundle, without a connection to the cluster
    Verify(VerifyArguments),
    /// Print the public key of the gateway's seals (its signatures of ended trees)
    Key(ConnectArguments),
}

#[derive(Clone, Debug, Args)]
pub struct ExportArguments {
    /// Any run in the tree: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub run: String,

    /// File for the bundle; replaces an existing file
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct VerifyArguments {
    /// File with the bundle
    pub file: PathBuf,

    /// Expected public key of the seal, from `aod audit key`, or a file with this key
    #[arg(long, value_name = "KEY")]
    pub public_key: Option<String>,
}
