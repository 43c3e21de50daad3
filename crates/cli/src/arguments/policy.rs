//! Flags about what capsules may have of this host's operator.

use std::path::PathBuf;

use aod_domain::egress::Permission;
use clap::Args;

/// What the operator of a node lets capsules have.
#[derive(Clone, Debug, Default, Args)]
pub struct PolicyArguments {
    /// Secrets for capsules: a directory with a file of mode 0600 for each, named as agent.yaml names it
    #[arg(
        long,
        env = "AOD_SECRETS",
        value_name = "DIR",
        conflicts_with = "secret_command",
        hide_env_values = true
    )]
    pub secrets: Option<PathBuf>,

    /// Secrets for capsules: a command that is given a name as its last argument and prints the value
    #[arg(
        long,
        env = "AOD_SECRET_COMMAND",
        value_name = "CMD",
        hide_env_values = true
    )]
    pub secret_command: Option<String>,

    /// Who answers for models and what they cost: a YAML file; without one OpenAI, Anthropic, Google and OpenRouter
    #[arg(long, env = "AOD_MODELS", value_name = "FILE", hide_env_values = true)]
    pub models: Option<PathBuf>,
    /// Where capsules may connect to, of what their agent.yaml lists: `api.example.com`, `*.example.com:8443`, `*`;
    /// may be given again
    #[arg(
        long,
        env = "AOD_EGRESS",
        value_name = "HOST",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub egress: Vec<Permission>,
}
