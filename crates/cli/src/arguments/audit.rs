//! What can be proved of a tree of runs, and to whom.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ConnectArguments;

#[derive(Clone, Debug, Subcommand)]
pub enum AuditCommand {
    /// Store a whole tree with its files as a bundle
    Export(ExportArguments),
    /// Check a bundle; nothing but the file is needed
    Verify(VerifyArguments),
    /// Print the public key that the gateway seals with
    Key(ConnectArguments),
}

#[derive(Clone, Debug, Args)]
pub struct ExportArguments {
    /// Id of the root; of a callee the tree that it belongs to is stored
    pub run: String,

    /// Where the bundle goes; what is there is replaced
    #[arg(short = 'o', long, value_name = "FILE")]
    pub file: PathBuf,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct VerifyArguments {
    /// The bundle
    pub file: PathBuf,

    /// The key that must have sealed it, as `aod audit key` prints it, or a file with it
    #[arg(long, value_name = "KEY")]
    pub public_key: Option<String>,
}
