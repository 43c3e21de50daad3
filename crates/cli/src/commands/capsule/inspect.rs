//! `aod capsule inspect`: a registered capsule or a directory.

use std::path::Path;

use aod_api::capsules::{BaseView, CapsuleView, ResourcesView};
use aod_domain::digest::{Digest, Hasher};
use aod_kit::{Source, pack};
use serde::Serialize;
use serde_json::Value;

use crate::arguments::InspectArguments;
use crate::client::{Client, encoded};
use crate::console::Console;
use crate::failure::Failure;
use crate::text;

/// The description of a capsule.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Inspection {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) aliases: Vec<String>,
    /// SHA-256 of the packed directory.
    pub(crate) content: Digest,
    /// The image's id; none for a directory.
    pub(crate) image: Option<String>,
    /// The images that its image is based on; empty for a directory.
    pub(crate) bases: Vec<BaseView>,
    /// SHA-256 of each file of a directory; empty for a registered capsule.
    pub(crate) files: Vec<(String, Digest)>,
    pub(crate) model: Option<String>,
    pub(crate) resources: ResourcesView,
    /// The permitted callees; `None` if the capsule may call every capsule.
    pub(crate) handoffs: Option<Vec<String>>,
    pub(crate) mcp_servers: Vec<String>,
    /// Names of the operator's secrets for the capsule.
    pub(crate) secrets: Vec<String>,
    /// Hosts that the capsule may connect to, if the operator permits them too.
    pub(crate) egress: Vec<String>,
    pub(crate) schema: Option<Value>,
}

pub(super) async fn inspect(arguments: &InspectArguments, console: Console) -> Result<(), Failure> {
    let directory = Path::new(&arguments.capsule);
    if arguments.layers {
        return layers(arguments, console).await;
    }
    let inspection = if directory.is_dir() {
        of_directory(&Source::read(directory)?)?
    } else {
        of_registered(registered(arguments).await?)
    };
    console.show(&inspection, || text::capsule::details(&inspection))
}

async fn layers(arguments: &InspectArguments, console: Console) -> Result<(), Failure> {
    if Path::new(&arguments.capsule).is_dir() {
        let text = format!("{} is a directory, which has no layers", arguments.capsule);
        return Err(Failure::usage(text).with_hint("register it: `aod capsule build DIR`"));
    }
    let view = registered(arguments).await?;
    let layers = view.layers.ok_or_else(|| {
        Failure::environment("the gateway does not list the layers of images")
            .with_hint("update the gateway")
    })?;
    console.show(&layers, || text::capsule::layers(&layers))
}

async fn registered(arguments: &InspectArguments) -> Result<CapsuleView, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let path = format!("/v1/capsules/{}", encoded(&arguments.capsule));
    Ok(client.get(&path, &[]).await?)
}

fn of_registered(view: CapsuleView) -> Inspection {
    Inspection {
        name: view.name,
        title: view.title,
        description: view.description,
        aliases: view.aliases,
        content: view.content,
        image: Some(view.image),
        bases: view.bases,
        files: Vec::new(),
        model: None,
        resources: view.resources,
        handoffs: view.handoffs,
        mcp_servers: Vec::new(),
        secrets: view.secrets,
        egress: view.egress,
        schema: view.schema,
    }
}

fn of_directory(source: &Source) -> Result<Inspection, Failure> {
    let files = [
        ("schema.json", Some(&source.schema_json)),
        ("agent.yaml", source.agent_yaml.as_ref()),
        ("tools.yaml", source.tools_yaml.as_ref()),
    ];
    let files = files.into_iter().filter_map(|(name, bytes)| {
        let digest = Digest::of(bytes?);
        Some((name.to_owned(), digest))
    });
    let agent = &source.agent;
    Ok(Inspection {
        name: source.name.to_string(),
        title: source.agent.title.clone(),
        description: source.agent.description.clone(),
        aliases: source.agent.aliases.clone(),
        content: content(&source.directory)?,
        image: None,
        bases: Vec::new(),
        files: files.collect(),
        model: source.agent.model.clone(),
        resources: ResourcesView::from(&source.agent.resources),
        handoffs: Some(source.targets().map(str::to_owned).collect()),
        mcp_servers: source.tools.mcp_servers.keys().cloned().collect(),
        secrets: agent
            .secrets
            .iter()
            .map(|secret| secret.name.clone())
            .collect(),
        egress: agent.egress.iter().map(ToString::to_string).collect(),
        schema: serde_json::from_slice(&source.schema_json).ok(),
    })
}

/// The digest of the directory in a registration.
fn content(directory: &Path) -> Result<Digest, Failure> {
    let package = pack(directory)?;
    let bytes = std::fs::read(package.file.path()).map_err(|error| {
        Failure::environment("the packed directory cannot be read").because(&error)
    })?;
    let mut hasher = Hasher::new();
    hasher.update(&bytes);
    Ok(hasher.finish())
}
