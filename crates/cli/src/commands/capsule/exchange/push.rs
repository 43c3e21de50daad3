//! `aod capsule push`: builds a capsule, and sends its image to a registry or into a directory.

use std::collections::HashMap;
use std::path::Path;

use aod_docker::exchange::Exchange;
use aod_domain::digest::Digest;
use aod_domain::manifest::CapsuleName;
use aod_kit::{Package, Source};
use aod_ports::container_runtime::RuntimeError;
use aod_registry::exchange::{ExchangeError, Parts};
use aod_registry::labels::{AGENT, SCHEMA, TOOLS};
use aod_registry::layout::{self, Watch};
use aod_registry::reference::{Place, Reference};
use aod_registry::remote::Remote;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    AGENT_YAML, SCHEMA_JSON, Store, TOOLS_YAML, connect, failed, free_space, login, place,
};
use crate::arguments::PushArguments;
use crate::commands::capsule::packed;
use crate::console::Console;
use crate::failure::Failure;

/// Maximum size of all labels, in bytes: the URL of a request to the engine contains them. Source: Go's
/// `http.DefaultMaxHeaderBytes` is 1 MiB, and a byte of text may take three bytes in a URL.
const LABELS_BYTES_MAX: usize = 300 * 1024;

/// Maximum buffered output lines of a build.
const LINES_QUEUED: usize = 256;

/// The tag of an image that is pushed into a layout without a tag.
const TAG_DEFAULT: &str = "latest";

pub(super) async fn run(
    arguments: &PushArguments,
    stop: &CancellationToken,
    console: Console,
) -> Result<(), Failure> {
    let place = place(&arguments.reference)?;
    let source = Source::read(&arguments.directory)?;
    let labels = labels_of(&source)?;
    let package = packed(&arguments.directory, console)?;
    let exchange = connect(&arguments.registry)?;
    let failed = |error: &ExchangeError| failed(&arguments.reference, &place, error);
    let target = Target::open(&place, &exchange)?;
    target.check().await.map_err(|error| failed(&error))?;
    let store = Store::open()?;
    let parts = build(&exchange, &source.name, &package, labels, &store, console).await?;
    let digest = target.push(&parts, stop, console).await;
    let digest = digest.map_err(|error| failed(&error))?;
    let reference = target.reference(digest);
    let name = source.name.as_str();
    let report = json!({
        "capsule": name,
        "reference": reference,
        "digest": format!("sha256:{digest}"),
    });
    console.show(&report, || reference.clone())
}

/// Builds the image, and stores its parts in `store`.
async fn build(
    exchange: &Exchange,
    name: &CapsuleName,
    package: &Package,
    labels: HashMap<String, String>,
    store: &Store,
    console: Console,
) -> Result<Parts, Failure> {
    let (progress, mut lines) = mpsc::channel::<String>(LINES_QUEUED);
    let context = package.file.path();
    let building = exchange.build(context, name, labels, &store.artifacts, progress);
    let showing = async {
        while let Some(line) = lines.recv().await {
            console.tell(&format!("  {line}"));
        }
    };
    let (built, ()) = tokio::join!(building, showing);
    let failed = || Failure::environment(format!("the image of {name} cannot be built"));
    let image = built.map_err(|error| match &error {
        RuntimeError::BuildFailed { last_lines, .. } => {
            failed().because(&error).with_details(last_lines.clone())
        }
        RuntimeError::Store(_) => failed().because(&error).with_hint(free_space()),
        _ => failed().because(&error),
    })?;
    let parts = Parts::of(&image, &store.artifacts).await;
    parts.map_err(|error| failed().because(&error))
}

/// Where a push goes.
enum Target<'a> {
    Registry(&'a Reference, Box<Remote>),
    Layout(&'a Path, &'a str),
}

impl<'a> Target<'a> {
    fn open(place: &'a Place, exchange: &Exchange) -> Result<Self, Failure> {
        match place {
            Place::Registry(reference) if reference.is_exact() => {
                let failure = Failure::usage("a push needs a tag, not a digest");
                Err(failure.with_hint("name the image as in registry.example/team/words:1"))
            }
            Place::Registry(reference) => {
                let remote = Remote::for_push(reference.clone(), login(exchange, reference)?);
                let remote = remote.map_err(|error| failed(reference.registry(), place, &error))?;
                Ok(Self::Registry(reference, Box::new(remote)))
            }
            Place::Layout { path, tag } => {
                Ok(Self::Layout(path, tag.as_deref().unwrap_or(TAG_DEFAULT)))
            }
        }
    }

    /// Reports before a long build what would fail after it.
    async fn check(&self) -> Result<(), ExchangeError> {
        match self {
            Self::Registry(_, remote) => remote.check().await,
            Self::Layout(path, _) => layout::check(path),
        }
    }

    async fn push(
        &self,
        parts: &Parts,
        stop: &CancellationToken,
        console: Console,
    ) -> Result<Digest, ExchangeError> {
        let progress = move |line: String| console.tell(&format!("  {line}"));
        match self {
            Self::Registry(_, remote) => remote.push(parts, &progress).await,
            Self::Layout(path, tag) => tokio::task::block_in_place(|| {
                let watch = Watch {
                    progress: &progress,
                    is_stopped: &|| stop.is_cancelled(),
                };
                layout::add(path, tag, parts, &watch)
            }),
        }
    }

    /// What `pull` takes.
    fn reference(&self, digest: Digest) -> String {
        match self {
            Self::Registry(reference, _) => reference.at(digest),
            Self::Layout(path, tag) => format!("oci:{}:{tag}", path.display()),
        }
    }
}

fn labels_of(source: &Source) -> Result<HashMap<String, String>, Failure> {
    let mut agent = source.agent_yaml.clone().unwrap_or_default();
    if source.agent.name.is_none() {
        // The name follows from the directory, which may have another name after a pull.
        agent.splice(0..0, format!("name: {}\n", source.name).into_bytes());
    }
    let texts = [
        (SCHEMA, Some(&source.schema_json)),
        (AGENT, Some(&agent)),
        (TOOLS, source.tools_yaml.as_ref()),
    ];
    let texts = texts.into_iter().filter_map(|(label, text)| {
        let text = String::from_utf8_lossy(text?).into_owned();
        Some((label.to_owned(), text))
    });
    let labels: HashMap<String, String> = texts.collect();
    let bytes: usize = labels.values().map(String::len).sum();
    if bytes > LABELS_BYTES_MAX {
        let text = format!(
            "{SCHEMA_JSON}, {AGENT_YAML} and {TOOLS_YAML} have {bytes} bytes together; expected at most {LABELS_BYTES_MAX}, \
             because they become labels of the image"
        );
        return Err(Failure::usage(text));
    }
    Ok(labels)
}
