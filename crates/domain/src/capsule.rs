//! A capsule: what is known of it once its image is built and it is registered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::egress::Rule;
use crate::event::Recorded;
use crate::manifest::{AgentManifest, CapsuleName, Secret};
use crate::placement::Requirements;
use crate::spending::Budget;
use crate::subject::{self, Label, Subject};
use crate::tenant::Tenant;

/// The image of a capsule, by digests that survive saving and loading.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Image {
    /// Docker's image id, the digest of the image's configuration: `sha256:…`.
    pub config_digest: String,
    /// The saved image in the artifact store, for hosts that did not build it.
    pub archive: Digest,
    pub archive_size_bytes: u64,
}

/// Characters of a digest in a tag: enough to tell versions apart, short enough to read.
const TAG_LENGTH: usize = 12;

/// What the image of a capsule is called, for people: its name and the beginning of its version.
pub fn image_tag(name: &CapsuleName, content: Digest) -> String {
    format!("aod/{name}:{}", &content.to_string()[..TAG_LENGTH])
}

/// Upper limits of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Thousandths of a processor.
    pub cpu_millis: u32,
    /// Memory and swap together, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// All that a run may write to disk (outputs, handoffs, workspace), in bytes.
    pub disk_bytes: u64,
    /// Running time, waiting for callees not counted.
    pub timeout_seconds: u32,
}

impl Default for Resources {
    /// What `agent.yaml` means when it says nothing: 1 processor, 2 GiB, 256 processes, 8 GiB of
    /// disk, 15 minutes.
    fn default() -> Self {
        Self {
            cpu_millis: 1_000,
            memory_bytes: 2 << 30,
            pids: 256,
            disk_bytes: 8 << 30,
            timeout_seconds: 900,
        }
    }
}

/// Whom a capsule may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handoffs {
    /// Those in its `tools.yaml`; none without one.
    Listed(Vec<Grant>),
    /// Everyone: what an operator sets for capsules of the original implementation.
    Open,
}

/// A capsule that may be called. Stored as its name alone where nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredGrant", into = "StoredGrant")]
pub struct Grant {
    /// A title, an alias or a name.
    pub target: String,
    /// Calls of one attempt, at the most.
    pub calls_max: Option<u32>,
    /// How long one call may take, at the most.
    pub timeout_seconds: Option<u32>,
}

impl From<&str> for Grant {
    /// Without bounds.
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

/// What a capsule may have of models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelGrant {
    /// `provider/model`, or a name alone, which any provider may have.
    pub names: Vec<String>,
    /// Of each run alone, its callees not counted.
    #[serde(default, skip_serializing_if = "Budget::is_none")]
    pub budget: Budget,
}

impl ModelGrant {
    /// Whether `model` of `provider` is among them.
    pub fn allows(&self, provider: &str, model: &str) -> bool {
        let full = format!("{provider}/{model}");
        self.names.iter().any(|name| *name == full || name == model)
    }
}

/// What a capsule wants of its operator besides a container, as its registered `agent.yaml` says. It
/// gets what the operator of its node has and permits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Secret>,
    /// Where it connects to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<Rule>,
    /// Variables of its container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// What its nodes must have.
    #[serde(default, skip_serializing_if = "Requirements::is_nothing")]
    pub placement: Requirements,
}

impl Needs {
    pub fn of(agent: &AgentManifest) -> Self {
        Self {
            secrets: agent.secrets.clone(),
            egress: agent.egress.clone(),
            env: agent.env.clone(),
            placement: agent.placement.clone(),
        }
    }

    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A capsule whose image is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    pub name: CapsuleName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The packed directory in the artifact store; its digest is the capsule's version.
    pub content: Digest,
    pub schema: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Digest>,
    pub image: Image,
    pub resources: Resources,
    pub handoffs: Handoffs,
    /// None for a capsule without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<ModelGrant>,
    #[serde(default, skip_serializing_if = "Needs::is_nothing")]
    pub needs: Needs,
    /// Where its runs go when the request does not say.
    pub label: Label,
    /// Who registered it.
    pub registered_by: String,
}

/// What happens to a capsule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    #[serde(rename = "dev.aod.capsule.registered.v1")]
    Registered(Registration),
}

impl Event {
    /// Where it is stored if the capsule is `tenant`'s.
    pub fn subject(&self, tenant: &Tenant) -> Subject {
        match self {
            Self::Registered(registration) => {
                subject::capsule_event(tenant, &registration.name, "registered")
            }
        }
    }
}

/// The capsules that one tenant can call, by name: the latest registration of each.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    capsules: BTreeMap<CapsuleName, Recorded<Registration>>,
}

impl Catalogue {
    /// Takes an event in; events come in the order of the log.
    pub fn apply(&mut self, recorded: Recorded<Event>) {
        let recorded = recorded.map(|Event::Registered(registration)| registration);
        let name = recorded.event.name.clone();
        self.capsules.insert(name, recorded);
    }

    pub fn get(&self, name: &CapsuleName) -> Option<&Recorded<Registration>> {
        self.capsules.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Recorded<Registration>> {
        self.capsules.values()
    }
}
