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
        let options = CreateImageOptions {
            from_image: Some(exact.to_owned()),
            ..CreateImageOptions::default()
        };
        let credentials = credentials.map(|credentials| DockerCredentials {
            username: Some(credentials.user.clone()),
            password: Some(credentials.password.clone()),
            ..DockerCredentials::default()
        });
        let engine = &self.engine;
        let failed = |error: CallError| error.during("pulling an image");
        let pulled = engine.docker.create_image(Some(options), None, credentials);
        let mut reports = pulled.boxed();
        let limit = engine.timeouts.load;
        while engine
            .next(limit, &mut reports)
            .await
            .map_err(failed)?
            .is_some()
        {}
        Ok(())
    }

    /// The credentials for the registry of a reference, if the file has some.
    pub fn credentials(&self, reference: &Reference) -> Result<Option<Credentials>, RuntimeError> {
        let Some(path) = &self.registries else {
            return Ok(None);
        };
        let mut all = registries::read(path).map_err(|source| RuntimeError::Engine {
            action: "reading the credentials for registries",
            source,
        })?;
        let found = all.remove(reference.login());
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

async fn loopback() -> Loopback {
    Loopback::open(&RegistryUse::Loopback(None)).await
}
