//! Who may do what.

use aod_api::tokens::CreateToken;
use clap::{Args, Subcommand};

use super::ConnectArguments;

#[derive(Clone, Debug, Subcommand)]
pub enum TokensCommand {
    /// Make a token and print it, once
    Create(CreateTokenArguments),
    /// List the tokens, without their secrets
    Ls(ConnectArguments),
    /// Revoke a token: no gateway knows it any more
    Revoke(RevokeTokenArguments),
}

#[derive(Clone, Debug, Args)]
pub struct CreateTokenArguments {
    /// Its name, which events tell: 1 to 63 of a-z, 0-9 and -
    pub name: String,

    /// Whose things it opens; your token's tenant unless given
    #[arg(long, value_name = "TENANT", conflicts_with = "all_tenants")]
    pub tenant: Option<String>,

    /// Let it open those of all tenants, and what is of the whole cluster
    #[arg(long)]
    pub all_tenants: bool,

    /// What it permits: `read`, `run`, `operate` or `admin`; each permits what those before it do
    #[arg(long, value_name = "ROLE")]
    pub role: String,

    /// Days until it counts no more [default: it counts for ever]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub expires: Option<u32>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

impl From<&CreateTokenArguments> for CreateToken {
    fn from(arguments: &CreateTokenArguments) -> Self {
        Self {
            name: arguments.name.clone(),
            role: arguments.role.clone(),
            tenant: arguments.tenant.clone(),
            all_tenants: arguments.all_tenants,
            expires_days: arguments.expires,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct RevokeTokenArguments {
    /// Its id, as `aod tokens ls` shows it
    pub token: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
