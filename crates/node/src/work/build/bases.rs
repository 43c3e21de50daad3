//! Chooses the images that a build is based on: those of the registered version, unless the author updates them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_domain::capsule::base::{
    self, BASES_BYTES_MAX, BASES_MAX, Base, Reason, Situation, Step, StoredBase, digest_of,
};
use aod_domain::capsule::{Image, Registration};
use aod_domain::dockerfile::{rewritten, uses};
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_ports::container_runtime::{ContainerRuntime, ImagePush, RuntimeError};
use aod_services::error::chain;
use aod_services::program::blocking;
use tokio::sync::mpsc;
use tracing::{debug, warn};

const DOCKERFILE: &str = "Dockerfile";

/// Maximum size of a `Dockerfile` that is read, in bytes; the builder reads a larger one without pins. The time grows with
/// the square of the number of stages.
const DOCKERFILE_BYTES_MAX: u64 = 64 << 10;

/// The base images of a build.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    bases: Vec<Base>,
    /// The reference whose image is below the layers of the capsule.
    below: Option<String>,
    /// The `Dockerfile` with their ids; none if it names no base image that the node has.
    pub(super) dockerfile: Option<String>,
}

/// What chooses the base images of one build.
pub(super) struct Chooser<'a> {
    pub(super) runtime: &'a dyn ContainerRuntime,
    pub(super) artifacts: &'a Arc<dyn ArtifactStore>,
    pub(super) registered: Option<&'a Registration>,
    pub(super) is_update: bool,
    pub(super) progress: &'a mpsc::Sender<String>,
}

impl Chooser<'_> {
    /// Brings the base images of the packed directory `context` to the engine.
    pub(super) async fn choose(&self, context: &Path) -> Result<Chosen, RuntimeError> {
        let path = context.to_path_buf();
        let text = match blocking(move || dockerfile(path)).await {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(Chosen::default()),
            Err(error) => {
                debug!(%error, "the builder reads the Dockerfile without pins");
                return Ok(Chosen::default());
            }
        };
        let uses = uses(&text);
        let references: BTreeSet<&str> = uses.iter().map(|used| used.reference.as_str()).collect();
        let (mut bases, mut room_bytes) = (Vec::new(), BASES_BYTES_MAX);
        for reference in references.into_iter().take(BASES_MAX) {
            let Some(base) = self.base(reference).await? else {
                continue;
            };
            if let Some(left) = room_bytes.checked_sub(base.size_bytes()) {
                room_bytes = left;
                bases.push(base);
            }
        }
        let image = |reference: &str| Some(base::pin(&bases, reference)?.image.as_str());
        let new = rewritten(&text, &uses, image);
        let below = uses.iter().find(|used| used.is_final);
        Ok(Chosen {
            below: below.map(|used| used.reference.clone()),
            dockerfile: (!bases.is_empty()).then_some(new),
            bases,
        })
    }

    /// The image for `reference`; none if the builder has to look for it.
    async fn base(&self, reference: &str) -> Result<Option<Base>, RuntimeError> {
        let registered = self.registered;
        let pins = registered.map_or(&[][..], |registered| &registered.bases);
        let pin = base::pin(pins, reference);
        let stored = pin
            .zip(registered)
            .and_then(|(pin, registered)| pin.stored(&registered.image));
        let mut situation = Situation {
            pin,
            is_update: self.is_update,
            is_stored: stored.is_some(),
            ..Situation::default()
        };
        loop {
            situation.pinned = self.pinned(pin).await?;
            situation.named = self.id(reference).await?;
            let step = situation.next();
            match &step {
                Step::Use { image, reason } => {
                    return self.used(reference, pin, image, reason).await.map(Some);
                }
                Step::PullPin { digest } => self.pull(digest).await,
                Step::Fetch => self.fetch(reference, stored.as_ref()).await,
                Step::Pull => self.pull(reference).await,
                Step::Leave => return Ok(None),
            }
            situation.tried.push(step);
        }
    }

    async fn id(&self, reference: &str) -> Result<Option<String>, RuntimeError> {
        let named = self.runtime.named_image(reference).await?;
        Ok(named.map(|named| named.id))
    }

    /// Id of the pinned image on this engine. An engine of another kind has another id for the same digest.
    async fn pinned(&self, pin: Option<&Base>) -> Result<Option<String>, RuntimeError> {
        let Some(pin) = pin else { return Ok(None) };
        if self.runtime.has_image(&pin.image).await? {
            return Ok(Some(pin.image.clone()));
        }
        match &pin.digest {
            Some(digest) => self.id(digest).await,
            None => Ok(None),
        }
    }

    async fn used(
        &self,
        reference: &str,
        pin: Option<&Base>,
        image: &str,
        reason: &Reason,
    ) -> Result<Base, RuntimeError> {
        self.tell(base::line(reference, image, reason)).await;
        let found = self.runtime.named_image(image).await?;
        let digests = found.map_or_else(Vec::new, |found| found.digests);
        let digest = digest_of(reference, &digests).map(str::to_owned);
        let same = pin.filter(|pin| pin.image == image);
        Ok(Base {
            reference: reference.to_owned(),
            digest: digest.or_else(|| same?.digest.clone()),
            stored: same.and_then(|pin| pin.stored),
            image: image.to_owned(),
        })
    }

    /// Pulls an image; the author sees why if that fails.
    async fn pull(&self, reference: &str) {
        let pulled = self.runtime.pull_image(reference, self.progress.clone());
        if let Err(error) = pulled.await {
            let text = format!("Base image {reference}: {}", chain(&error));
            self.tell(text).await;
        }
    }

    async fn fetch(&self, reference: &str, stored: Option<&Image>) {
        let Some(stored) = stored else { return };
        if let Err(error) = self.runtime.fetch_base(stored, self.artifacts).await {
            let text = format!("Base image {reference}: {}", chain(&error));
            self.tell(text).await;
        }
    }

    async fn tell(&self, line: String) {
        // Without a reader, nobody waits for the line.
        let _ = self.progress.send(line).await;
    }

    /// The bases of the built `image`, with the one below its layers in the artifact store.
    pub(super) async fn store(
        &self,
        chosen: Chosen,
        image: &Image,
    ) -> Result<Vec<Base>, RuntimeError> {
        let mut bases = chosen.bases;
        for base in &mut bases {
            if chosen.below.as_ref() != Some(&base.reference) {
                base.stored = None;
            } else if !self.is_stored(base, image).await? {
                base.stored = self.store_below(base, image).await?;
            }
        }
        Ok(bases)
    }

    /// Whether the store has the parts of the base from the registered version; renews them.
    async fn is_stored(&self, base: &Base, image: &Image) -> Result<bool, StoreError> {
        let registered = self.registered.map(|registered| &registered.image);
        let earlier = registered.and_then(|registered| base.stored(registered));
        if earlier.is_none() || earlier != base.stored(image) {
            return Ok(false);
        }
        for digest in base.artifacts() {
            if self.artifacts.renew_intact(digest).await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stores the configuration of the base; its layers are those of `image`, which the store has.
    async fn store_below(
        &self,
        base: &Base,
        image: &Image,
    ) -> Result<Option<StoredBase>, RuntimeError> {
        // Nobody needs its lines: it sends no layer.
        let (progress, _) = mpsc::channel(1);
        let push = ImagePush {
            image: &base.image,
            artifacts: self.artifacts,
            progress,
        };
        match self.runtime.store_image(push).await {
            Ok(below) => Ok(StoredBase::of(&below, image)),
            Err(RuntimeError::Store(error)) => Err(error.into()),
            Err(error) => {
                let (error, reference) = (chain(&error), &base.reference);
                warn!(
                    error,
                    reference, "a base image is not stored for other nodes"
                );
                Ok(None)
            }
        }
    }
}

/// The `Dockerfile` of a packed directory; none if it is too large. Of several entries, the last one counts.
fn dockerfile(context: PathBuf) -> io::Result<Option<String>> {
    let mut found = None;
    let mut archive = tar::Archive::new(File::open(context)?);
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let path = entry.path()?;
        if path.strip_prefix(".").unwrap_or(&path) != Path::new(DOCKERFILE) {
            continue;
        }
        let is_small = entry.size() <= DOCKERFILE_BYTES_MAX;
        let mut text = String::new();
        entry.take(DOCKERFILE_BYTES_MAX).read_to_string(&mut text)?;
        found = is_small.then_some(text);
    }
    Ok(found)
}
