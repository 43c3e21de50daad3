//! Flags of the commands that make what programs of a cluster trust each other by.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct CredentialsArguments {
    /// Where to write nats-users.conf, the credentials of each part, token and seal.key
    pub directory: PathBuf,

    /// Make a user for the node of this host alone, which can be taken away alone: nats-node-NAME.creds
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// Give users of an earlier version, who may do everything, the rights of their parts, and new passwords
    #[arg(long, requires = "store", conflicts_with = "node")]
    pub upgrade: bool,

    /// The directory that nats-server, which must not run, keeps streams in: store_dir of its configuration
    #[arg(long, value_name = "DIR", requires = "upgrade")]
    pub store: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct CertsArguments {
    /// Where to write ca.crt, ca.key, and the certificate with its key
    pub directory: PathBuf,

    /// A name or address that the certificate is for, besides this host itself; may be given again. Without one, all
    /// certificates that are there are issued anew
    #[arg(long = "host", value_name = "NAME_OR_IP")]
    pub hosts: Vec<String>,

    /// What the certificate's files are called
    #[arg(
        long,
        value_name = "NAME",
        default_value = "server",
        requires = "hosts"
    )]
    pub name: String,

    /// Where ca.crt and ca.key are, if the authority is kept off this directory
    #[arg(long, value_name = "DIR")]
    pub authority: Option<PathBuf>,

    /// How long the certificate is good for
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=825))]
    pub days: u16,
}
