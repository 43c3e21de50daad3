//! Flags of `aod credentials` and `aod certs`.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct CredentialsArguments {
    /// Directory for the files: nats-users.conf, nats-*.creds, token and seal.key
    pub directory: PathBuf,

    /// Create separate credentials for one node: nats-node-NAME.creds, which you can revoke separately
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// Upgrade broker users that an earlier version created with all rights: limit the rights of each user, and create
    /// new passwords
    #[arg(long, requires = "store", conflicts_with = "node")]
    pub upgrade: bool,

    /// Data directory of nats-server (store_dir in its configuration), for --upgrade: the command moves the streams in
    /// it to a new account; stop nats-server first
    #[arg(long, value_name = "DIR", requires = "upgrade")]
    pub store: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct CertsArguments {
    /// Directory for ca.crt, ca.key, the certificate and its key
    pub directory: PathBuf,

    /// Host name or IP address in the certificate, in addition to localhost (repeatable). Without --host, the command
    /// renews all existing certificates
    #[arg(long = "host", value_name = "NAME_OR_IP")]
    pub hosts: Vec<String>,

    /// Name of the certificate's files, without extension
    #[arg(
        long,
        value_name = "NAME",
        default_value = "server",
        requires = "hosts"
    )]
    pub name: String,

    /// Directory of ca.crt and ca.key [default: the directory of the certificate]
    #[arg(long, value_name = "DIR")]
    pub authority: Option<PathBuf>,

    /// Validity of the certificate
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=825))]
    pub days: u16,
}
