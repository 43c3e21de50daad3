//! Flags of `aod tokens`.

use aod_api::tokens::CreateToken;
use clap::{Args, Subcommand};

use super::ConnectArguments;

#[derive(Clone, Debug, Subcommand)]
pub enum TokensCommand {
    /// Create a token and print it; AOD shows it only once
    Create(CreateTokenArguments),
    /// List the tokens, without their secrets
    Ls(ConnectArguments),
    /// Revoke a token: gateways no longer accept it
    Revoke(RevokeTokenArguments),
}

#[derive(Clone, Debug, Args)]
pub struct CreateTokenArguments {
    /// Name of the token, recorded in events: 1 to 63 characters from a-z, 0-9 and -
    pub name: String,

    /// Tenant that the token is valid for [default: the tenant of your token]
    #[arg(long, value_name = "TENANT", conflicts_with = "all_tenants")]
    pub tenant: Option<String>,

    /// Make the token valid for all tenants and for the whole cluster
    #[arg(long)]
    pub all_tenants: bool,

    /// Role: `read`, `run`, `operate` or `admin`; each includes the roles before it
    #[arg(long, value_name = "ROLE")]
    pub role: String,

    /// Days until the token expires [default: never]
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
    /// Id of the token, from `aod tokens ls`
    pub token: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
