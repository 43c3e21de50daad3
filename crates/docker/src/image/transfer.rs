//! Moves images between the engine and the artifact store, layer by layer.
//!
//! The engine pushes to and pulls from the registry of this process, so it moves only layers that the other side
//! lacks. An engine that cannot reach the registry (rootless, or on another host) saves and loads whole images
//! ([`super::saved`]), with the same result in the store.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::capsule::{Image, ImageContent};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::RuntimeError;
use aod_registry::{PullError, Registry, Transfer};
use bollard::auth::DockerCredentials;
use bollard::query_parameters::{
    CreateImageOptions, PushImageOptions, RemoveImageOptions, TagImageOptions,
};
use futures::StreamExt as _;
use thiserror::Error;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::engine::{CallError, Engine};
use crate::image::{self, saved};
use crate::names::{LABEL_NAME, LABEL_VERSION};

const STORING: &str = "storing an image";
const FETCHING: &str = "fetching an image";

/// Pause between two lines of progress.
const REPORT_EVERY: Duration = Duration::from_secs(1);

const MEBIBYTE: u64 = 1 << 20;

/// A transfer whose result is another image.
#[derive(Debug, Error)]
#[error("expected the image {expected}, found {found}")]
struct WrongImage {
    expected: String,
    found: String,
}

/// Stores the parts of the image that `artifacts` lacks.
pub(crate) async fn store(
    engine: &Engine,
    registry: Option<&Registry>,
    compressed: &saved::Compressed,
    image: &str,
    artifacts: &Arc<dyn ArtifactStore>,
    progress: &mpsc::Sender<String>,
) -> Result<Image, RuntimeError> {
    let is_here = image::has(engine, image).await;
    if !is_here.map_err(|error| error.during(STORING))? {
        return Err(RuntimeError::ImageMissing {
            image: image.to_owned(),
        });
    }
    let stored = match registry {
        Some(registry) => push(engine, registry, image, artifacts, progress).await?,
        None => None,
    };
    let stored = match stored {
        Some(stored) => stored,
        None => saved::store(engine, compressed, image, artifacts.as_ref(), progress).await?,
    };
    expect(image, stored.config_digest.clone(), STORING)?;
    Ok(stored)
}

/// Pushes the image; none if the engine cannot reach the registry.
async fn push(
    engine: &Engine,
    registry: &Registry,
    image: &str,
    artifacts: &Arc<dyn ArtifactStore>,
    progress: &mpsc::Sender<String>,
) -> Result<Option<Image>, RuntimeError> {
    let transfer = registry.push(artifacts);
    let name = transfer.repository();
    let tag = TagImageOptions {
        repo: Some(name.clone()),
        tag: Some(transfer.tag().to_owned()),
    };
    let tagged = engine.query(engine.docker.tag_image(image, Some(tag)));
    tagged.await.map_err(|error| error.during(STORING))?;
    let pushed = reported(&transfer, progress, run_push(engine, &transfer)).await;
    untag(engine, &format!("{name}:{}", transfer.tag())).await;
    finish(&transfer, pushed, STORING)?;
    Ok(transfer.pushed())
}

async fn run_push(engine: &Engine, transfer: &Transfer) -> Result<(), CallError> {
    let options = PushImageOptions {
        tag: Some(transfer.tag().to_owned()),
        ..PushImageOptions::default()
    };
    let credentials = Some(credentials(transfer));
    let pushing = engine
        .docker
        .push_image(&transfer.repository(), Some(options), credentials);
    let mut reports = pushing.boxed();
    while engine
        .next(engine.timeouts.load, &mut reports)
        .await?
        .is_some()
    {}
    Ok(())
}

/// Brings `image` to the engine; returns the bytes that came from elsewhere.
pub(crate) async fn fetch(
    engine: &Engine,
    registry: Option<&Registry>,
    image: &Image,
    artifacts: &Arc<dyn ArtifactStore>,
) -> Result<u64, RuntimeError> {
    let id = &image.config_digest;
    let is_here = image::has(engine, id).await;
    if is_here.map_err(|error| error.during(FETCHING))? {
        return Ok(0);
    }
    if let ImageContent::Archive {
        archive,
        archive_size_bytes,
    } = &image.content
    {
        let file = artifacts.get_file(*archive, *archive_size_bytes).await?;
        saved::load(engine, id, file.path()).await?;
        return Ok(file.fetched_bytes());
    }
    let pulled = match registry {
        Some(registry) => pull(engine, registry, image, artifacts).await?,
        None => None,
    };
    match pulled {
        Some(bytes) => Ok(bytes),
        None => saved::fetch(engine, image, artifacts.as_ref()).await,
    }
}

/// Pulls the image; none if the engine cannot reach the registry.
async fn pull(
    engine: &Engine,
    registry: &Registry,
    image: &Image,
    artifacts: &Arc<dyn ArtifactStore>,
) -> Result<Option<u64>, RuntimeError> {
    let transfer = match registry.pull(image, artifacts).await {
        Ok(transfer) => transfer,
        Err(PullError::Store(error)) => return Err(error.into()),
        Err(error) => return Err(failed(FETCHING, error)),
    };
    let pulled = run_pull(engine, &transfer).await;
    let name = format!("{}:{}", transfer.repository(), transfer.tag());
    finish(&transfer, pulled, FETCHING)?;
    if !transfer.was_used() {
        return Ok(None);
    }
    let found = image::inspect(engine, &name).await;
    let found = found.map_err(|error| error.during(FETCHING))?;
    let found = found.unwrap_or_default();
    let labels = found.config.and_then(|config| config.labels);
    let labels = labels.unwrap_or_default();
    if let (Some(capsule), Some(version)) = (labels.get(LABEL_NAME), labels.get(LABEL_VERSION)) {
        let tag = TagImageOptions {
            repo: Some(format!("aod/{capsule}")),
            tag: Some(version.clone()),
        };
        let tagged = engine.query(engine.docker.tag_image(&name, Some(tag)));
        if let Err(error) = tagged.await {
            debug!(%error, "a fetched image has no name of its capsule");
        }
    }
    untag(engine, &name).await;
    expect(&image.config_digest, found.id.unwrap_or_default(), FETCHING)?;
    Ok(Some(transfer.moved_bytes()))
}

async fn run_pull(engine: &Engine, transfer: &Transfer) -> Result<(), CallError> {
    let options = CreateImageOptions {
        from_image: Some(transfer.repository()),
        tag: Some(transfer.tag().to_owned()),
        ..CreateImageOptions::default()
    };
    let credentials = Some(credentials(transfer));
    let mut reports = engine
        .docker
        .create_image(Some(options), None, credentials)
        .boxed();
    while engine
        .next(engine.timeouts.load, &mut reports)
        .await?
        .is_some()
    {}
    Ok(())
}

/// The credentials of a transfer for the engine.
pub(crate) fn credentials(transfer: &Transfer) -> DockerCredentials {
    DockerCredentials {
        username: Some(transfer.user().to_owned()),
        password: Some(transfer.secret().to_owned()),
        ..DockerCredentials::default()
    }
}

/// The failure of a transfer by its cause; a transfer without any request is no failure yet.
fn finish(
    transfer: &Transfer,
    ended: Result<(), CallError>,
    action: &'static str,
) -> Result<(), RuntimeError> {
    let Err(error) = ended else { return Ok(()) };
    if let Some(failure) = transfer.store_failure() {
        return Err(failure.into());
    }
    if transfer.was_used() {
        return Err(error.during(action));
    }
    warn!(%error, action, "the engine no longer reaches the registry of this node; moving the whole image");
    Ok(())
}

/// Sends a line of progress each second while `work` runs.
async fn reported<T>(
    transfer: &Transfer,
    progress: &mpsc::Sender<String>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(REPORT_EVERY, work.as_mut()).await {
            let text = megabytes(transfer.moved_bytes());
            let _ = progress.try_send(format!("Stored the image: {text} of new layers"));
            return done;
        }
        let text = megabytes(transfer.moved_bytes());
        let _ = progress.try_send(format!("Storing the image: {text} of new layers"));
    }
}

pub(super) fn megabytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(MEBIBYTE))
}

fn expect(expected: &str, found: String, action: &'static str) -> Result<(), RuntimeError> {
    if found == expected {
        return Ok(());
    }
    let expected = expected.to_owned();
    Err(failed(action, WrongImage { expected, found }))
}

/// Removes the name of a transfer, unless it is the only one: the engine would remove the image with it.
async fn untag(engine: &Engine, name: &str) {
    let found = image::inspect(engine, name).await.ok().flatten();
    let names = found.and_then(|found| found.repo_tags).unwrap_or_default();
    if names.len() < 2 {
        return;
    }
    let removal = engine
        .docker
        .remove_image(name, None::<RemoveImageOptions>, None);
    if let Err(error) = engine.call(engine.timeouts.remove, removal).await {
        debug!(name, %error, "the name of a transfer stays");
    }
}

pub(super) fn failed(
    action: &'static str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> RuntimeError {
    RuntimeError::Engine {
        action,
        source: Box::new(source),
    }
}
