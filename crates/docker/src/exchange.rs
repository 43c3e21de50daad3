//! The engine's part in the exchange of capsules: builds images for other places, and brings images from there.
//!
//! An image carries its contract as labels, so a pull needs nothing else.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_domain::capsule::Image;
use aod_domain::manifest::CapsuleName;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::{ImageBuild, RuntimeError};
use aod_registry::reference::Reference;
use aod_registry::remote::authorization::Credentials;
use bollard::auth::DockerCredentials;
use bollard::query_parameters::CreateImageOptions;
use futures::StreamExt as _;
use tokio::sync::mpsc;

use crate::config::{BuildLimits, RegistryUse, Timeouts};
use crate::engine::{CallError, Engine};
use crate::image;
use crate::image::build::Build;
use crate::image::saved::Compressed;
use crate::image::transfer::Mover;
use crate::loopback::Loopback;
use crate::registries;

/// Tag of the images that are built for other places: the same for every place, so that the image is the same too.
const TAG: &str = "pushed";

const PULLING: &str = "pulling an image";

/// An engine that exchanges images with other places.
#[derive(Debug)]
pub struct Exchange {
    engine: Engine,
    /// A file with credentials, as `docker login` writes it.
    registries: Option<PathBuf>,
}

impl Exchange {
    /// # Errors
    /// [`RuntimeError::Engine`] if the engine is unavailable.
    pub fn connect(endpoint: &Path, registries: Option<PathBuf>) -> Result<Self, RuntimeError> {
        let engine = Engine::connect(endpoint, Timeouts::default())
            .map_err(|error| error.during("connecting to the engine"))?;
        Ok(Self { engine, registries })
    }

    /// Builds the packed directory with these labels, and stores the image in `artifacts`.
    ///
    /// # Errors
    /// [`RuntimeError::BuildFailed`]: fixed by the author; [`RuntimeError::Store`]: the disk of `artifacts`.
    pub async fn build(
        &self,
        context: &Path,
        name: &CapsuleName,
        labels: HashMap<String, String>,
        artifacts: &Arc<dyn ArtifactStore>,
        progress: mpsc::Sender<String>,
    ) -> Result<Image, RuntimeError> {
        let tag = format!("aod/{name}:{TAG}");
        let context = context.to_owned();
        let build = Build {
            image: ImageBuild::new(context, name.as_str(), &tag, progress.clone()),
            labels,
            limits: BuildLimits::default(),
            look: format!("aod-push-look-{}", std::process::id()),
            registries: self.registries.as_deref(),
        };
        let id = image::build::build(&self.engine, build).await?;
        let (loopback, compressed) = (loopback().await, Compressed::default());
        let mover = self.mover(&loopback, &compressed, artifacts);
        mover.store(&id, progress).await
    }

    /// Brings a stored image to the engine under `name`.
    ///
    /// # Errors
    /// [`RuntimeError::Engine`] if the engine refuses the image, or gets another one.
    pub async fn load(
        &self,
        image: &Image,
        name: &str,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<(), RuntimeError> {
        let (loopback, compressed) = (loopback().await, Compressed::default());
        let mover = self.mover(&loopback, &compressed, artifacts);
        mover.load(image, name).await
    }

    /// Lets the engine pull `name@sha256:…` from its registry, so that builds find the image on this host.
    ///
    /// # Errors
    /// [`RuntimeError::Engine`] has the registry's message.
    pub async fn pull(
        &self,
        exact: &str,
        credentials: Option<&Credentials>,
    ) -> Result<(), RuntimeError> {
        let credentials = credentials.map(|credentials| DockerCredentials {
            username: Some(credentials.user.clone()),
            password: Some(credentials.password.clone()),
            ..DockerCredentials::default()
        });
        let (progress, _) = mpsc::channel(1);
        pull(&self.engine, exact, credentials, &progress).await
    }

    /// The credentials for the registry of a reference, if the file has some.
    pub fn credentials(&self, reference: &Reference) -> Result<Option<Credentials>, RuntimeError> {
        let found = credentials(self.registries.as_deref(), reference)?;
        Ok(found.and_then(|found| {
            Some(Credentials {
                user: found.username?,
                password: found.password?,
            })
        }))
    }

    const fn mover<'a>(
        &'a self,
        loopback: &'a Loopback,
        compressed: &'a Compressed,
        artifacts: &'a Arc<dyn ArtifactStore>,
    ) -> Mover<'a> {
        Mover {
            engine: &self.engine,
            loopback,
            compressed,
            artifacts,
        }
    }
}

/// Pulls `reference` with the credentials of a node; sends what the engine reports about the whole image.
///
/// # Errors
/// [`RuntimeError::Engine`] has the registry's message.
pub(crate) async fn pull_for_node(
    engine: &Engine,
    registries: Option<&Path>,
    reference: &str,
    progress: &mpsc::Sender<String>,
) -> Result<(), RuntimeError> {
    let parsed: Reference = reference.parse().map_err(|error| RuntimeError::Engine {
        action: PULLING,
        source: Box::new(error),
    })?;
    let credentials = credentials(registries, &parsed)?;
    pull(engine, reference, credentials, progress).await
}

async fn pull(
    engine: &Engine,
    reference: &str,
    credentials: Option<DockerCredentials>,
    progress: &mpsc::Sender<String>,
) -> Result<(), RuntimeError> {
    let (name, tag) = split(reference);
    let options = CreateImageOptions {
        from_image: Some(name.to_owned()),
        tag: Some(tag.to_owned()),
        ..CreateImageOptions::default()
    };
    let mut reports = engine
        .docker
        .create_image(Some(options), None, credentials)
        .boxed();
    let failed = |error: CallError| error.during(PULLING);
    while let Some(report) = engine
        .next(engine.timeouts.load, &mut reports)
        .await
        .map_err(failed)?
    {
        // With an id, it is about one layer: many lines.
        if let (None, Some(status)) = (report.id, report.status) {
            let _ = progress.try_send(status);
        }
    }
    Ok(())
}

/// Name and digest; or name and tag, without which the engine would pull all tags.
fn split(reference: &str) -> (&str, &str) {
    if let Some(parts) = reference.split_once('@') {
        return parts;
    }
    match reference.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (reference, "latest"),
    }
}

fn credentials(
    registries: Option<&Path>,
    reference: &Reference,
) -> Result<Option<DockerCredentials>, RuntimeError> {
    let Some(path) = registries else {
        return Ok(None);
    };
    let mut all = registries::read(path).map_err(|source| RuntimeError::Engine {
        action: "reading the credentials for registries",
        source,
    })?;
    Ok(all.remove(reference.login()))
}

async fn loopback() -> Loopback {
    Loopback::open(&RegistryUse::Loopback(None)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_has_a_name_and_a_tag_or_digest() {
        for (reference, name, tag) in [
            ("one", "one", "latest"),
            ("host:5000/one", "host:5000/one", "latest"),
            ("host:5000/one:2", "host:5000/one", "2"),
            ("host:5000/one@sha256:12", "host:5000/one", "sha256:12"),
        ] {
            assert_eq!(split(reference), (name, tag), "{reference}");
        }
    }
}
