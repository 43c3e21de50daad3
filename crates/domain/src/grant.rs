//! What a capsule may call: other capsules, and models.

use serde::{Deserialize, Serialize};

use crate::spending::Budget;

/// The capsules that a capsule may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handoffs {
    /// The capsules in its `tools.yaml`; none without one.
    Listed(Vec<Grant>),
    /// All capsules: an operator's setting for agent-on-demand capsules.
    Open,
}

/// A capsule that may be called. Stored as its name alone if it has no limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredGrant", into = "StoredGrant")]
pub struct Grant {
    /// A title, an alias or a name.
    pub target: String,
    /// Maximum calls of one attempt.
    pub calls_max: Option<u32>,
    /// Maximum duration of one call.
    pub timeout_seconds: Option<u32>,
}

impl From<&str> for Grant {
    /// Without limits.
    fn from(target: &str) -> Self {
        StoredGrant::Name(target.to_owned()).into()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredGrant {
    Name(String),
    Bounded {
        target: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        calls_max: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_seconds: Option<u32>,
    },
}

impl From<StoredGrant> for Grant {
    fn from(stored: StoredGrant) -> Self {
        let (target, calls_max, timeout_seconds) = match stored {
            StoredGrant::Name(target) => (target, None, None),
            StoredGrant::Bounded {
                target,
                calls_max,
                timeout_seconds,
            } => (target, calls_max, timeout_seconds),
        };
        Self {
            target,
            calls_max,
            timeout_seconds,
        }
    }
}

impl From<Grant> for StoredGrant {
    fn from(grant: Grant) -> Self {
        match grant {
            Grant {
                target,
                calls_max: None,
                timeout_seconds: None,
            } => Self::Name(target),
            Grant {
                target,
                calls_max,
                timeout_seconds,
            } => Self::Bounded {
                target,
                calls_max,
                timeout_seconds,
            },
        }
    }
}

/// The models that a capsule may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelGrant {
    /// `provider/model`, or a name alone for any provider.
    pub names: Vec<String>,
    /// The budget of each run, without its callees.
    #[serde(default, skip_serializing_if = "Budget::is_none")]
    pub budget: Budget,
}

impl ModelGrant {
    /// Whether the grant contains `model` of `provider`. `provider/*` contains all models of the provider.
    pub fn allows(&self, provider: &str, model: &str) -> bool {
        let (full, all) = (format!("{provider}/{model}"), format!("{provider}/*"));
        let mut names = self.names.iter();
        names.any(|name| *name == full || name == model || *name == all)
    }
}
