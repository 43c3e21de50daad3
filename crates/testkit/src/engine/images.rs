//! The images of the double: commands by name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aod_domain::capsule::{Blob, Image, ImageContent};
use aod_domain::digest::Digest;
use aod_domain::manifest::CapsuleName;
use aod_ports::artifact_store::{ArtifactStore, StoreError, Stored};
use aod_ports::container_runtime::{ImageBuild, NamedImage, ObservedImage, RuntimeError};
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use tokio::sync::{OnceCell, mpsc};

use super::Command;

/// The result of building a packed directory.
#[derive(Clone)]
pub enum Recipe {
    /// An image with this command; none stands for a missing command.
    Makes(Option<Command>),
    /// No image: the build prints these lines and fails.
    Fails { lines: Vec<String> },
}

/// The images on an engine.
#[derive(Default)]
pub struct Images(Mutex<State>);

#[derive(Default)]
struct State {
    /// All images that ever existed here: a stored image contains only a name.
    made: BTreeMap<String, Option<Command>>,
    here: BTreeSet<String>,
    /// Images by their names here.
    named: BTreeMap<String, String>,
    /// By the bytes of the directory.
    recipes: BTreeMap<Vec<u8>, Recipe>,
    /// Images that were built here, with their capsules.
    built: BTreeMap<String, CapsuleName>,
    /// By tag.
    building: BTreeMap<String, Arc<OnceCell<Built>>>,
}

/// The image, or the last lines of the build that failed.
type Built = Result<String, Vec<String>>;

impl Images {
    pub(super) fn new(images: impl IntoIterator<Item = (String, Command)>) -> Self {
        let all = Self::default();
        for (image, command) in images {
            all.add(&image, Some(command));
        }
        all
    }

    /// Adds an image; without a command, one whose command is missing.
    pub fn add(&self, image: &str, command: Option<Command>) {
        let mut state = self.state();
        state.made.insert(image.to_owned(), command);
        state.here.insert(image.to_owned());
    }

    /// Removes an image.
    pub fn forget(&self, image: &str) {
        self.state().here.remove(image);
    }

    /// Sets the result of building the packed directory with these bytes.
    pub fn teach(&self, context: &[u8], recipe: Recipe) {
        self.state().recipes.insert(context.to_owned(), recipe);
    }

    pub(super) fn named(&self, reference: &str) -> Option<NamedImage> {
        let state = self.state();
        let id = state.named.get(reference).map_or(reference, String::as_str);
        state.here.contains(id).then(|| NamedImage {
            id: id.to_owned(),
            digests: Vec::new(),
        })
    }

    pub(super) fn built(&self) -> Vec<ObservedImage> {
        let state = self.state();
        let here = state
            .built
            .iter()
            .filter(|(id, _)| state.here.contains(*id));
        here.map(|(id, capsule)| ObservedImage {
            id: id.clone(),
            capsule: capsule.clone(),
        })
        .collect()
    }

    pub(super) fn has(&self, image: &str) -> bool {
        self.state().here.contains(image)
    }

    pub(super) fn command(&self, image: &str) -> Result<Option<Command>, RuntimeError> {
        self.ensure(image)?;
        Ok(self.state().made.get(image).cloned().flatten())
    }

    /// Builds; concurrent builds of a tag share one build.
    pub(super) async fn build(&self, build: ImageBuild<'_>) -> Result<String, RuntimeError> {
        let ImageBuild {
            context,
            name,
            tag,
            progress,
            ..
        } = build;
        let bytes = std::fs::read(context).map_err(failed("opening a build's context"))?;
        let cell = Arc::clone(self.state().building.entry(tag.to_owned()).or_default());
        let built = cell
            .get_or_init(async || self.make(&bytes, &progress).await)
            .await;
        self.state()
            .building
            .retain(|_, building| !Arc::ptr_eq(building, &cell));
        if let (Ok(image), Ok(capsule)) = (&built, name.parse()) {
            let mut state = self.state();
            state.built.insert(image.clone(), capsule);
            state.named.insert(tag.to_owned(), image.clone());
        }
        built
            .clone()
            .map_err(|last_lines| RuntimeError::BuildFailed {
                message: "the recipe makes this build fail".into(),
                last_lines,
            })
    }

    async fn make(&self, context: &[u8], progress: &mpsc::Sender<String>) -> Built {
        let recipe = self.state().recipes.get(context).cloned();
        let recipe = recipe.unwrap_or_else(|| Recipe::Fails {
            lines: vec!["no recipe for this directory".into()],
        });
        let _ = progress.try_send("Step 1/1 : as the recipe says".into());
        tokio::task::yield_now().await;
        match recipe {
            Recipe::Makes(command) => {
                let image = format!("sha256:{}", Digest::of(context));
                self.add(&image, command);
                Ok(image)
            }
            Recipe::Fails { lines } => {
                for line in &lines {
                    let _ = progress.try_send(line.clone());
                }
                Err(lines)
            }
        }
    }

    /// Stores the parts that `artifacts` lacks and renews the others, one after the other: a layer that all images share,
    /// a layer with the name of the image, and a manifest.
    pub(super) async fn store(
        &self,
        image: &str,
        artifacts: &dyn ArtifactStore,
    ) -> Result<Image, RuntimeError> {
        self.ensure(image)?;
        let mut layers = Vec::new();
        for layer in [BASE, image] {
            layers.push(push(artifacts, layer).await?);
        }
        let manifest = push(artifacts, &format!("manifest of {image}")).await?;
        Ok(Image {
            config_digest: image.to_owned(),
            content: ImageContent::Layers {
                manifest: manifest.digest,
                config: None,
                layers,
            },
        })
    }

    /// Fetches all parts, and returns the bytes that came from elsewhere.
    pub(super) async fn fetch(
        &self,
        image: &Image,
        artifacts: &dyn ArtifactStore,
    ) -> Result<u64, RuntimeError> {
        let id = &image.config_digest;
        if self.has(id) {
            return Ok(0);
        }
        let (mut texts, mut fetched_bytes) = (Vec::new(), 0);
        for part in image.parts().iter() {
            let file = artifacts.get_file(part.digest, part.size_bytes).await?;
            let text = std::fs::read_to_string(file.path());
            texts.push(text.map_err(failed("fetching an image"))?);
            fetched_bytes += file.fetched_bytes();
        }
        let mut state = self.state();
        if texts.last() != Some(id) || !state.made.contains_key(id) {
            return Err(failed("fetching an image")(io::Error::other(format!(
                "the layers hold {texts:?}"
            ))));
        }
        state.here.insert(id.clone());
        Ok(fetched_bytes)
    }

    fn ensure(&self, image: &str) -> Result<(), RuntimeError> {
        if self.has(image) {
            return Ok(());
        }
        Err(RuntimeError::ImageMissing {
            image: image.to_owned(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of the layer that all images share.
const BASE: &str = "base";

/// The stored part; sent only if the store lacks it.
async fn push(artifacts: &dyn ArtifactStore, text: &str) -> Result<Blob, StoreError> {
    let digest = Digest::of(text);
    if let Some(size_bytes) = artifacts.renew_intact(digest).await? {
        return Ok(Blob { digest, size_bytes });
    }
    let bytes = Bytes::from(text.to_owned());
    let stored = artifacts.put_stream(stream::iter([Ok(bytes)]).boxed());
    let Stored { digest, size_bytes } = stored.await?;
    Ok(Blob { digest, size_bytes })
}

fn failed(action: &'static str) -> impl Fn(io::Error) -> RuntimeError {
    move |error| RuntimeError::Engine {
        action,
        source: Box::new(error),
    }
}
