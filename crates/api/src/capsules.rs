//! Types of `/v1/capsules`.

use aod_domain::capsule::layers::{Compared, Comparison};
use aod_domain::capsule::{Base, Resources};
use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A registered capsule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapsuleView {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// SHA-256 of the packed directory: its version.
    #[schema(value_type = String)]
    pub content: Digest,
    /// The image id, `sha256:…`.
    pub image: String,
    /// The images that its image is based on. The next version is built on the same ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bases: Vec<BaseView>,
    /// Pool of its runs unless a request names another one.
    pub pool: String,
    pub resources: ResourcesView,
    /// Capsules that it may call; missing if it may call every capsule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoffs: Option<Vec<String>>,
    /// Names of its secrets, including optional ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// External hosts that it may connect to if the operator also allows them: `host:port`, `*.host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    pub registered_at: Timestamp,
    pub registered_by: String,
    /// The layers of the image; missing in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<LayersView>,
    /// `{"input": …, "output": …}`; missing in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
}

/// An image that the image of a capsule is based on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BaseView {
    /// As the `Dockerfile` names it, in `FROM` or `COPY --from`.
    pub reference: String,
    /// The image id, `sha256:…`.
    pub image: String,
    /// Its name in the registry, `name@sha256:…`; missing if it was made on a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Whether the artifact store has it, so that every node can build on it without a registry.
    pub is_stored: bool,
}

/// The layers of an image as the artifact store has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayersView {
    /// Compressed size of all layers.
    pub size_bytes: u64,
    /// Compressed size of the layers that no other capsule has. The store can free them after the capsule is removed, once
    /// garbage collection has deleted the runs that used them.
    pub own_bytes: u64,
    /// From the base up.
    pub items: Vec<LayerView>,
}

/// A layer of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayerView {
    /// SHA-256 of the compressed layer.
    #[schema(value_type = String)]
    pub digest: Digest,
    pub size_bytes: u64,
    /// Whether another capsule, of any tenant, has this layer.
    pub is_shared: bool,
    /// Other capsules of the same tenant that have this layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_with: Vec<String>,
}

impl From<&Base> for BaseView {
    fn from(base: &Base) -> Self {
        Self {
            reference: base.reference.clone(),
            image: base.image.clone(),
            digest: base.digest.clone(),
            is_stored: base.stored.is_some(),
        }
    }
}

impl From<Comparison> for LayersView {
    fn from(compared: Comparison) -> Self {
        Self {
            size_bytes: compared.size_bytes(),
            own_bytes: compared.own_bytes(),
            items: compared.layers.into_iter().map(LayerView::from).collect(),
        }
    }
}

impl From<Compared> for LayerView {
    fn from(compared: Compared) -> Self {
        let names = compared.shared_with.iter();
        Self {
            digest: compared.layer.digest,
            size_bytes: compared.layer.size_bytes,
            is_shared: compared.is_shared,
            shared_with: names.map(ToString::to_string).collect(),
        }
    }
}

/// Upper limits of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourcesView {
    /// Thousandths of a processor.
    pub cpu_millis: u32,
    pub memory_bytes: u64,
    pub pids: u32,
    pub disk_bytes: u64,
    pub timeout_seconds: u32,
}

impl From<&Resources> for ResourcesView {
    fn from(resources: &Resources) -> Self {
        Self {
            cpu_millis: resources.cpu_millis,
            memory_bytes: resources.memory_bytes,
            pids: resources.pids,
            disk_bytes: resources.disk_bytes,
            timeout_seconds: resources.timeout_seconds,
        }
    }
}

/// All registered capsules, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapsuleList {
    pub items: Vec<CapsuleView>,
}

/// The answer of `POST /v1/capsules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegisteredCapsule {
    #[serde(flatten)]
    pub capsule: CapsuleView,
    /// The run that built the image; its logs are those of the build. Missing if no build was necessary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub build: Option<RunId>,
    /// Whether the same content was already registered; nothing changed then.
    pub is_unchanged: bool,
}
