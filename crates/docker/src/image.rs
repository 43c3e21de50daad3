//! Images on this engine: their existence, and their settings for containers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use aod_ports::container_runtime::{NamedImage, RuntimeError};
use bollard::models::ImageInspect;

use crate::engine::{CallError, Engine};

pub(crate) mod build;
mod context;
pub(crate) mod garbage;
mod layout;
pub(crate) mod look;
pub(crate) mod saved;
pub(crate) mod transfer;
mod users;

/// The settings of an image for its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageFacts {
    /// Entrypoint followed by cmd, as Docker would run them.
    pub(crate) command: Vec<String>,
    /// Empty, or a name or number, with or without a group.
    pub(crate) user: String,
    pub(crate) environment: Vec<(String, String)>,
    /// The paths that the image declares as volumes.
    pub(crate) volumes: Vec<String>,
    /// Operating system and processor, as in `linux/amd64`.
    pub(crate) platform: String,
}

impl ImageFacts {
    /// Whether the image would run as root, by the name or number of its user.
    pub(crate) fn is_for_root(&self) -> bool {
        let name = self.user.split(':').next().unwrap_or_default();
        name.is_empty() || name == "root" || name.parse() == Ok(0_u32)
    }
}

/// Facts of inspected images. An image never changes under its id.
#[derive(Debug, Default)]
pub(crate) struct Images {
    known: Mutex<HashMap<String, Arc<ImageFacts>>>,
}

/// Maximum number of remembered images; above it, all are forgotten and inspected again.
const IMAGES_KNOWN_MAX: usize = 1_024;

impl Images {
    /// The facts of `image`, from memory if it was inspected before.
    pub(crate) async fn facts(
        &self,
        engine: &Engine,
        image: &str,
    ) -> Result<Arc<ImageFacts>, RuntimeError> {
        if let Some(facts) = self.lock().get(image) {
            return Ok(Arc::clone(facts));
        }
        let inspected = inspect(engine, image)
            .await
            .map_err(|error| error.during("inspecting an image"))?
            .ok_or_else(|| RuntimeError::ImageMissing {
                image: image.to_owned(),
            })?;
        let facts = Arc::new(ImageFacts::from(inspected));
        let mut known = self.lock();
        if known.len() >= IMAGES_KNOWN_MAX {
            known.clear();
        }
        known.insert(image.to_owned(), Arc::clone(&facts));
        Ok(facts)
    }

    /// Forgets an image that the engine no longer has.
    pub(crate) fn forget(&self, image: &str) {
        self.lock().remove(image);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<ImageFacts>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Inspects an image by id or tag; none if it does not exist.
pub(crate) async fn inspect(
    engine: &Engine,
    image: &str,
) -> Result<Option<ImageInspect>, CallError> {
    match engine.query(engine.docker.inspect_image(image)).await {
        Ok(inspected) => Ok(Some(inspected)),
        Err(error) if error.is_status(404) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The image to which `reference` refers; none also for a text that is no reference.
pub(crate) async fn named(
    engine: &Engine,
    reference: &str,
) -> Result<Option<NamedImage>, CallError> {
    let inspected = match inspect(engine, reference).await {
        Err(error) if error.is_status(400) => return Ok(None),
        inspected => inspected?,
    };
    Ok(inspected.and_then(|found| {
        Some(NamedImage {
            id: found.id?,
            digests: found.repo_digests.unwrap_or_default(),
        })
    }))
}

/// Whether an image of exactly this id exists; a tag of the same text does not count.
pub(crate) async fn has(engine: &Engine, image: &str) -> Result<bool, CallError> {
    let inspected = inspect(engine, image).await?;
    Ok(inspected.is_some_and(|found| found.id.as_deref() == Some(image)))
}

impl From<ImageInspect> for ImageFacts {
    fn from(image: ImageInspect) -> Self {
        let config = image.config.unwrap_or_default();
        let command = [config.entrypoint, config.cmd]
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        let environment = config.env.into_iter().flatten();
        let environment = environment
            .filter_map(|entry| {
                entry
                    .split_once('=')
                    .map(|(key, value)| (key.into(), value.into()))
            })
            .collect();
        let (system, processor) = (image.os, image.architecture);
        Self {
            command,
            platform: [system, processor].map(Option::unwrap_or_default).join("/"),
            user: config.user.unwrap_or_default(),
            environment,
            volumes: config.volumes.unwrap_or_default(),
        }
    }
}
