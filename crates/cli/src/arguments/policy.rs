//! Flags with which the operator of a node grants secrets, models and egress.

use std::path::PathBuf;

use aod_domain::egress::Permission;
use clap::Args;

/// The secrets, models and hosts that the operator of a node grants to capsules.
#[derive(Clone, Debug, Default, Args)]
pub struct PolicyArguments {
    /// Directory with secrets for capsules: the file NAME, with mode 0600 or 0400, contains the secret that agent.yaml
    /// lists as NAME
    #[arg(
        long,
        env = "AOD_SECRETS",
        value_name = "DIR",
        conflicts_with = "secret_command",
        hide_env_values = true
    )]
    pub secrets: Option<PathBuf>,

    /// Command that prints a secret for capsules; AOD appends the name of the secret as last argument
    #[arg(
        long,
        env = "AOD_SECRET_COMMAND",
        value_name = "CMD",
        hide_env_values = true
    )]
    pub secret_command: Option<String>,

    /// YAML file with model providers and prices [default: OpenAI, Anthropic, Google and OpenRouter]
    #[arg(long, env = "AOD_MODELS", value_name = "FILE", hide_env_values = true)]
    pub models: Option<PathBuf>,
    /// Host that capsules may connect to, if their agent.yaml lists it: `api.example.com`, `*.example.com:8443`, `*`
    /// (repeatable)
    #[arg(
        long,
        env = "AOD_EGRESS",
        value_name = "HOST",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub egress: Vec<Permission>,
}
