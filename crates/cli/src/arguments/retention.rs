//! How long artifacts are kept, what is held, and what goes.

use aod_api::retention::SetPolicy;
use aod_domain::retention::Keep;
use clap::{Args, Subcommand};

use super::{ConnectArguments, RunArgument, labels};

#[derive(Clone, Debug, Subcommand)]
pub enum RetentionCommand {
    /// List the policies
    Ls(ConnectArguments),
    /// Make a policy, or put it in the place of the one of this name
    Set(SetPolicyArguments),
    /// Remove a policy: what it alone let go stays
    Rm(PolicyArgument),
}

#[derive(Clone, Debug, Args)]
pub struct PolicyArgument {
    /// Its name
    pub name: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

/// A tree that several policies are for keeps what it names for the longest of their times.
#[derive(Clone, Debug, Args)]
pub struct SetPolicyArguments {
    /// Its name: 1 to 63 of a-z, 0-9 and -
    pub name: String,

    /// How long logs are kept once their tree has ended: 30d, 12h, 90m, 45s or forever
    #[arg(long, value_name = "TIME")]
    pub logs: Option<Keep>,

    /// The same of inputs, outputs and what was said to models
    #[arg(long, value_name = "TIME")]
    pub files: Option<Keep>,

    /// The same of images, packed directories and manifests of capsules that are not registered so any more
    #[arg(long, value_name = "TIME")]
    pub capsules: Option<Keep>,

    /// Only for trees of this tenant; may be given again
    #[arg(long, value_name = "TENANT")]
    pub tenant: Vec<String>,

    /// Only for trees whose root is a run of this capsule; may be given again
    #[arg(long, value_name = "NAME")]
    pub capsule: Vec<String>,

    /// Only for trees whose root has this label: `team=a`; may be given again, and then all must be there
    #[arg(long, value_name = "NAME=VALUE", value_parser = labels::pair)]
    pub label: Vec<(String, String)>,

    /// Only for trees whose root ended so: succeeded, failed, timed_out, cancelled; may be given again
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
    /// List the trees that are held
    Ls(ConnectArguments),
    /// Hold the whole tree that a run belongs to: nothing that it names is collected
    Set(SetHoldArguments),
    /// Let a tree go: from now on policies count
    Rm(RunArgument),
}

#[derive(Clone, Debug, Args)]
pub struct SetHoldArguments {
    /// Id of the run
    pub run: String,

    /// Why, for people
    #[arg(long)]
    pub reason: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct CollectArguments {
    /// Tell what would go, and leave it
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
