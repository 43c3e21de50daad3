//! Moves images between the engine and the artifact store, layer by layer.
//!
//! The engine pushes to and pulls from the registry of this process, so it moves only layers that the other side
//! lacks. An engine that cannot reach the registry (rootless, or on another host) saves and loads whole images
//! ([`super::saved`]), with the same result in the store.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::capsule::base::short;
use aod_domain::capsule::{Image, ImageContent};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::RuntimeError;
use aod_registry::{PullError, Transfer};
use bollard::auth::DockerCredentials;
use bollard::query_parameters::{
    CreateImageOptions, PushImageOptions, RemoveImageOptions, TagImageOptions,
};
use futures::StreamExt as _;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::engine::{CallError, Engine};
use crate::image::{self, saved};
use crate::loopback::Loopback;
use crate::names::{LABEL_NAME, LABEL_VERSION};

const STORING: &str = "storing an image";
const FETCHING: &str = "fetching an image";

/// Pause between two lines of progress.
const REPORT_EVERY: Duration = Duration::from_secs(1);

const MEBIBYTE: u64 = 1 << 20;

/// Name of fetched base images: Docker shows the names of images, and removes images without one when it cleans up.
const BASE: &str = "base";

/// How long a failed transfer stays open: longer than Docker waits for a layer before it asks for the next one.
const LINGER: Duration = Duration::from_secs(600);

/// A transfer whose result is another image.
#[derive(Debug, Error)]
#[error("expected the image {expected}, found {found}")]
struct WrongImage {
    expected: String,
    found: String,
}

/// Moves images between the engine and one artifact store.
#[derive(Debug)]
pub(crate) struct Mover<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) loopback: &'a Loopback,
    pub(crate) compressed: &'a saved::Compressed,
    pub(crate) artifacts: &'a Arc<dyn ArtifactStore>,
}

impl Mover<'_> {
    /// Stores the parts of the image that the artifact store lacks.
    pub(crate) async fn store(
        &self,
        image: &str,
        progress: mpsc::Sender<String>,
    ) -> Result<Image, RuntimeError> {
        let (engine, artifacts) = (self.engine, self.artifacts);
        let is_here = image::has(engine, image).await;
        if !is_here.map_err(|error| error.during(STORING))? {
            return Err(RuntimeError::ImageMissing {
                image: image.to_owned(),
            });
        }
        let pushed = match self.loopback.registry(engine, artifacts).await {
            Some(registry) => {
                let transfer = registry.push(artifacts);
                let (engine, image) = (engine.clone(), image.to_owned());
                let progress = progress.clone();
                detached(|dropped| push(engine, transfer, image, progress, dropped)).await?
            }
            None => None,
        };
        let stored = match pushed {
            Some(pushed) => pushed,
            None => {
                let (known, store) = (self.compressed, artifacts.as_ref());
                saved::store(engine, known, image, store, &progress).await?
            }
        };
        let found = stored.config_digest.clone();
        let named = stored.named(image);
        named.ok_or_else(|| wrong_image(STORING, image, found))
    }

    /// Brings `image` to the engine; returns the bytes that came from elsewhere.
    pub(crate) async fn fetch(&self, image: &Image) -> Result<u64, RuntimeError> {
        self.fetch_as(image, None).await
    }

    /// As [`Self::fetch`], under a name for base images.
    pub(crate) async fn fetch_base(&self, image: &Image) -> Result<u64, RuntimeError> {
        let name = format!("aod/{BASE}:{}", short(&image.config_digest));
        self.fetch_as(image, Some(&name)).await
    }

    /// Brings `image` to the engine under `name`. Its labels, which a stranger may have written, name nothing.
    pub(crate) async fn load(&self, image: &Image, name: &str) -> Result<(), RuntimeError> {
        let failed = |error: CallError| error.during(FETCHING);
        self.fetch_as(image, Some(name)).await?;
        let named = image::inspect(self.engine, name).await.map_err(failed)?;
        let named = named.and_then(|found| found.id).unwrap_or_default();
        if image.clone().named(&named).is_some() {
            return Ok(());
        }
        // The engine had the image before, or has loaded it as a whole.
        let tagged = tag(self.engine, &image.config_digest, name).await;
        tagged.map_err(failed)
    }

    async fn fetch_as(&self, image: &Image, name: Option<&str>) -> Result<u64, RuntimeError> {
        let (engine, artifacts) = (self.engine, self.artifacts);
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
        let pulled = match self.loopback.registry(engine, artifacts).await {
            Some(registry) => {
                let transfer = registry.pull(image, artifacts).await;
                let transfer = transfer.map_err(not_pulled)?;
                let wanted = Wanted {
                    image: image.clone(),
                    name: name.map(str::to_owned),
                };
                let engine = engine.clone();
                detached(|dropped| pull(engine, transfer, wanted, dropped)).await?
            }
            None => None,
        };
        match pulled {
            Some(bytes) => Ok(bytes),
            None => saved::fetch(engine, image, artifacts.as_ref()).await,
        }
    }
}

fn not_pulled(error: PullError) -> RuntimeError {
    match error {
        PullError::Store(error) => error.into(),
        error => failed(FETCHING, error),
    }
}

fn wrong_image(action: &'static str, expected: &str, found: String) -> RuntimeError {
    let expected = expected.to_owned();
    failed(action, WrongImage { expected, found })
}

/// Runs a transfer in a task of its own: a dropped caller ends it early, but it still removes its name.
async fn detached<T, F>(transfer: impl FnOnce(CancellationToken) -> F) -> Result<T, RuntimeError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, RuntimeError>> + Send + 'static,
{
    let dropped = CancellationToken::new();
    let guard = dropped.clone().drop_guard();
    let ended = tokio::spawn(transfer(dropped)).await;
    drop(guard.disarm());
    ended.unwrap_or_else(|error| Err(failed("moving an image", error)))
}

/// Keeps a transfer open that has failed: Docker shares the layers of transfers, so another one may still wait for a
/// layer that Docker moves with the secret of this one.
fn linger(transfer: Transfer) {
    tokio::spawn(async move {
        tokio::time::sleep(LINGER).await;
        drop(transfer);
    });
}

/// Pushes the image; none if the engine cannot reach the registry.
async fn push(
    engine: Engine,
    transfer: Transfer,
    image: String,
    progress: mpsc::Sender<String>,
    dropped: CancellationToken,
) -> Result<Option<Image>, RuntimeError> {
    let name = format!("{}:{}", transfer.repository(), transfer.tag());
    let pushing = async {
        tag(&engine, &image, &name).await?;
        reported(&transfer, &progress, run_push(&engine, &transfer)).await
    };
    let pushed = dropped.run_until_cancelled(pushing).await;
    untag(&engine, &name).await;
    if let (Some(Err(_)), Some(refusal)) = (&pushed, transfer.refusal()) {
        return Err(RuntimeError::BuildFailed {
            message: format!("the image cannot be stored: {refusal}"),
            last_lines: Vec::new(),
        });
    }
    let ended = match pushed {
        Some(Ok(())) => return Ok(transfer.pushed()),
        Some(Err(error)) => finish(&transfer, error, STORING),
        None => Ok(()),
    };
    linger(transfer);
    ended.map(|()| None)
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

/// A pull by the engine.
struct Wanted {
    image: Image,
    /// The name of the image on the engine, instead of the name of its capsule.
    name: Option<String>,
}

impl Wanted {
    /// Whether the engine calls the image `id`. Only the image of a cluster already has the id of its engines.
    fn is(&self, id: &str) -> bool {
        match self.name {
            None => self.image.config_digest == id,
            Some(_) => self.image.clone().named(id).is_some(),
        }
    }
}

/// Pulls an image; none if the engine cannot reach the registry.
async fn pull(
    engine: Engine,
    transfer: Transfer,
    wanted: Wanted,
    dropped: CancellationToken,
) -> Result<Option<u64>, RuntimeError> {
    let pulled = dropped
        .run_until_cancelled(run_pull(&engine, &transfer))
        .await;
    let name = format!("{}:{}", transfer.repository(), transfer.tag());
    let ended = match pulled {
        Some(Ok(())) if transfer.was_used() => {
            let found = name_pulled(&engine, &name, &wanted).await;
            untag(&engine, &name).await;
            let found = found?;
            if !wanted.is(&found) {
                return Err(wrong_image(FETCHING, &wanted.image.config_digest, found));
            }
            return Ok(Some(transfer.moved_bytes()));
        }
        // A stranger's registry may have answered.
        Some(Ok(())) | None => Ok(()),
        Some(Err(error)) => finish(&transfer, error, FETCHING),
    };
    untag(&engine, &name).await;
    linger(transfer);
    ended.map(|()| None)
}

/// Gives a pulled image its wanted name, or the name of its capsule; returns its id.
async fn name_pulled(engine: &Engine, name: &str, wanted: &Wanted) -> Result<String, RuntimeError> {
    let found = image::inspect(engine, name).await;
    let found = found.map_err(|error| error.during(FETCHING))?;
    let found = found.unwrap_or_default();
    let id = found.id.unwrap_or_default();
    let labels = found.config.and_then(|config| config.labels);
    let labels = labels.unwrap_or_default();
    let of_capsule = || {
        let (capsule, version) = (labels.get(LABEL_NAME)?, labels.get(LABEL_VERSION)?);
        Some(format!("aod/{capsule}:{version}"))
    };
    if wanted.is(&id)
        && let Some(target) = wanted.name.clone().or_else(of_capsule)
        && let Err(error) = tag(engine, name, &target).await
    {
        debug!(%error, target, "a fetched image has no name");
    }
    Ok(id)
}

/// Gives an image the name `target`, with a tag after its last colon.
async fn tag(engine: &Engine, image: &str, target: &str) -> Result<(), CallError> {
    let (name, tag) = target.rsplit_once(':').unwrap_or((target, "latest"));
    let options = TagImageOptions {
        repo: Some(name.to_owned()),
        tag: Some(tag.to_owned()),
    };
    engine
        .query(engine.docker.tag_image(image, Some(options)))
        .await
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
fn finish(transfer: &Transfer, error: CallError, action: &'static str) -> Result<(), RuntimeError> {
    if let Some(failure) = transfer.store_failure() {
        return Err(failure.into());
    }
    if transfer.was_used() {
        return Err(error.during(action));
    }
    warn!(%error, action, "the engine no longer reaches the registry of this node; moving the whole image");
    Ok(())
}

/// Sends a line of progress each second while `work` runs, and one after it has succeeded.
async fn reported(
    transfer: &Transfer,
    progress: &mpsc::Sender<String>,
    work: impl Future<Output = Result<(), CallError>>,
) -> Result<(), CallError> {
    let mut work = std::pin::pin!(work);
    let report = |word| {
        let text = megabytes(transfer.moved_bytes());
        let _ = progress.try_send(format!("{word} the image: {text} of new layers"));
    };
    loop {
        match tokio::time::timeout(REPORT_EVERY, work.as_mut()).await {
            Ok(Ok(())) => {
                report("Stored");
                return Ok(());
            }
            Ok(failed) => return failed,
            Err(_) => report("Storing"),
        }
    }
}

pub(super) fn megabytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(MEBIBYTE))
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
