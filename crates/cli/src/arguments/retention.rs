//! Flags of `aod retention`, `aod hold` and `aod gc`.

use aod_api::retention::SetPolicy;
use aod_domain::retention::Keep;
use clap::{Args, Subcommand};

use super::{ConnectArguments, RunArgument, labels};
use crate::completion;

#[derive(Clone, Debug, Subcommand)]
pub enum RetentionCommand {
    /// List the policies
    Ls(ConnectArguments),
    /// Create or replace a policy
    Set(SetPolicyArguments),
    /// Remove a policy; AOD keeps all artifacts for which no other policy sets a time
    Rm(PolicyArgument),
}

#[derive(Clone, Debug, Args)]
pub struct PolicyArgument {
    /// Name of the policy
    pub name: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

/// If several policies match a tree, the longest time applies.
#[derive(Clone, Debug, Args)]
pub struct SetPolicyArguments {
    /// Name of the policy: 1 to 63 characters from a-z, 0-9 and -
    pub name: String,

    /// Retention time of logs, from the end of their tree: 30d, 12h, 90m, 45s or forever
    #[arg(long, value_name = "TIME")]
    pub logs: Option<Keep>,

    /// Retention time of inputs, outputs, model requests and model answers
    #[arg(long, value_name = "TIME")]
    pub files: Option<Keep>,

    /// Retention time of removed capsules and of replaced versions: images, packed directories, schema.json, agent.yaml
    /// and tools.yaml
    #[arg(long, value_name = "TIME")]
    pub capsules: Option<Keep>,

    /// Only trees of this tenant (repeatable)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Vec<String>,

    /// Only trees whose root is a run of this capsule (repeatable)
    #[arg(long, value_name = "NAME")]
    pub capsule: Vec<String>,

    /// Only trees whose root has this label: `team=a` (repeatable; all must match)
    #[arg(long, value_name = "NAME=VALUE", value_parser = labels::pair)]
    pub label: Vec<(String, String)>,

    /// Only trees whose root has this outcome: succeeded, failed, timed_out, cancelled (repeatable)
    #[arg(long, value_name = "OUTCOME")]
    pub outcome: Vec<String>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

impl From<&SetPolicyArguments> for SetPolicy {
    fn from(arguments: &SetPolicyArguments) -> Self {
        let text = |keep: Option<Keep>| keep.map(|keep| keep.to_string());
        Self {
            for_tenants: arguments.tenant.clone(),
            for_capsules: arguments.capsule.clone(),
            for_labels: arguments.label.iter().cloned().collect(),
            for_outcomes: arguments.outcome.clone(),
            logs: text(arguments.logs),
            files: text(arguments.files),
            capsules: text(arguments.capsules),
        }
    }
}

#[derive(Clone, Debug, Subcommand)]
pub enum HoldCommand {
    /// List the held trees
    Ls(ConnectArguments),
    /// Hold the whole tree of a run: AOD deletes none of its artifacts
    Set(SetHoldArguments),
    /// Remove a hold; retention policies apply again
    Rm(RunArgument),
}

#[derive(Clone, Debug, Args)]
pub struct SetHoldArguments {
    /// Run: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub run: String,

    /// Reason for the hold; `aod hold ls` shows it
    #[arg(long)]
    pub reason: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct CollectArguments {
    /// List the artifacts to delete, without deleting them
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
