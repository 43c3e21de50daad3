//! A registered capsule with its image.

pub mod base;
pub mod layers;

use std::collections::BTreeMap;
use std::convert::Infallible;

use serde::{Deserialize, Serialize};

pub use self::base::Base;
use crate::chain::Chain;
use crate::digest::Digest;
use crate::egress::Permission;
use crate::event::Recorded;
pub use crate::grant::{Grant, Handoffs, ModelGrant};
pub use crate::image::{Blob, Image, ImageContent, LAYERS_MAX, image_tag};
use crate::manifest::{AgentManifest, CapsuleName, Secret, ToolsManifest};
use crate::placement::Requirements;
pub use crate::resources::Resources;
use crate::subject::{self, Pool, Subject};
use crate::tenant::Tenant;

/// What a capsule requests of its operator besides a container, from its registered `agent.yaml`. The capsule gets what
/// the operator of its node has and permits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Secret>,
    /// Hosts that it connects to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<Permission>,
    /// Environment variables of its container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Requirements for its nodes.
    #[serde(default, skip_serializing_if = "Requirements::is_nothing")]
    pub placement: Requirements,
}

impl Needs {
    pub fn of(agent: &AgentManifest) -> Self {
        Self {
            secrets: agent.secrets.clone(),
            egress: agent.egress.iter().cloned().map(Permission::Rule).collect(),
            env: agent.env.clone(),
            placement: agent.placement.clone(),
        }
    }

    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// What a capsule may do beyond its manifests: for capsules that were written before AOD had them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Openness {
    /// It may call every capsule.
    pub handoffs: bool,
    /// It may connect to every host that the operator of its node permits.
    pub egress: bool,
}

impl Openness {
    pub fn handoffs(self, tools: &ToolsManifest) -> Handoffs {
        if self.handoffs {
            return Handoffs::Open;
        }
        tools.handoffs()
    }

    pub fn needs(self, agent: &AgentManifest) -> Needs {
        let mut needs = Needs::of(agent);
        if self.egress {
            needs.egress = vec![Permission::Everywhere { port: None }];
        }
        needs
    }
}

/// A capsule with its image.
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
    /// For a task: its `workflow.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Digest>,
    pub image: Image,
    /// The images that its image is based on; empty for versions from before they were recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bases: Vec<Base>,
    pub resources: Resources,
    pub handoffs: Handoffs,
    /// None for a capsule without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<ModelGrant>,
    #[serde(default, skip_serializing_if = "Needs::is_nothing")]
    pub needs: Needs,
    /// The pool of its runs, unless the request sets one.
    pub pool: Pool,
    /// The principal that registered the capsule.
    pub registered_by: String,
}

/// The result of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    #[serde(flatten)]
    pub image: Image,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bases: Vec<Base>,
}

impl Built {
    /// The artifacts of the image and of the images that it is based on.
    pub fn artifacts(&self) -> Vec<Digest> {
        let bases = self.bases.iter().flat_map(Base::artifacts);
        self.image.artifacts().into_iter().chain(bases).collect()
    }
}

/// The end of a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    pub name: CapsuleName,
    pub requested_by: String,
}

/// A change of a capsule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    #[serde(rename = "dev.aod.capsule.registered.v1")]
    Registered(Box<Registration>),
    /// The capsule cannot be called any more; recorded runs of the capsule remain.
    #[serde(rename = "dev.aod.capsule.removed.v1")]
    Removed(Removed),
}

impl Event {
    /// The subject of the event if the capsule belongs to `tenant`.
    pub fn subject(&self, tenant: &Tenant) -> Subject {
        let word = match self {
            Self::Registered(_) => "registered",
            Self::Removed(_) => "removed",
        };
        subject::capsule_event(tenant, self.name(), word)
    }

    pub fn name(&self) -> &CapsuleName {
        match self {
            Self::Registered(registration) => &registration.name,
            Self::Removed(removed) => &removed.name,
        }
    }

    /// The registration; none if the event removes it.
    pub fn into_registration(self) -> Option<Registration> {
        match self {
            Self::Registered(registration) => Some(*registration),
            Self::Removed(_) => None,
        }
    }
}

/// The capsule `name` of one tenant, with its events so far.
#[derive(Clone, Debug)]
pub struct CapsuleChain {
    pub tenant: Tenant,
    pub name: CapsuleName,
    pub is_registered: bool,
    last: Option<(u64, Digest)>,
}

impl CapsuleChain {
    /// The capsule without any event.
    pub const fn new(tenant: Tenant, name: CapsuleName) -> Self {
        Self {
            tenant,
            name,
            is_registered: false,
            last: None,
        }
    }
}

impl Chain for CapsuleChain {
    type Event = Event;
    type Broken = Infallible;

    fn name(&self) -> String {
        format!("the capsule {}", self.name)
    }

    fn filter(&self) -> String {
        subject::capsule_of(&self.tenant, &self.name)
    }

    fn subject(&self, event: &Event) -> Subject {
        event.subject(&self.tenant)
    }

    fn about(&self, event: &Event) -> String {
        format!("capsule/{}", event.name())
    }

    fn last(&self) -> Option<(u64, Digest)> {
        self.last
    }

    fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), Infallible> {
        self.last = Some((recorded.sequence, recorded.hash));
        self.is_registered = recorded.event.into_registration().is_some();
        Ok(())
    }
}

/// No capsule has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no capsule is named \"{0}\"")]
pub struct NotRegistered(pub CapsuleName);

/// The event that removes the capsule.
///
/// # Errors
/// [`NotRegistered`].
pub fn remove(chain: &CapsuleChain, requested_by: &str) -> Result<Event, NotRegistered> {
    let name = chain.name.clone();
    if !chain.is_registered {
        return Err(NotRegistered(name));
    }
    Ok(Event::Removed(Removed {
        name,
        requested_by: requested_by.to_owned(),
    }))
}

/// The capsules that one tenant can call: the latest registration of each name, unless it is removed.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    capsules: BTreeMap<CapsuleName, Recorded<Registration>>,
}

impl Catalogue {
    /// Applies an event, in the order of the log.
    pub fn apply(&mut self, recorded: Recorded<Event>) {
        let name = recorded.event.name().clone();
        match recorded.map(Event::into_registration).transpose() {
            Some(registered) => self.capsules.insert(name, registered),
            None => self.capsules.remove(&name),
        };
    }

    pub fn get(&self, name: &CapsuleName) -> Option<&Recorded<Registration>> {
        self.capsules.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Recorded<Registration>> {
        self.capsules.values()
    }
}

#[cfg(test)]
mod tests;
