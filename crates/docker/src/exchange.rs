//! Capsules in registries: the image carries its contract as labels, so a pull needs nothing else.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use aod_ports::container_runtime::{ImageBuild, RuntimeError};
use bollard::auth::DockerCredentials;
use bollard::query_parameters::{CreateImageOptionsBuilder, PushImageOptionsBuilder};
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::sync::mpsc;

use crate::config::{BuildLimits, Timeouts};
use crate::engine::{CallError, Engine};
use crate::image;
use crate::image::build::Build;
use crate::registries;

/// The name of Docker's own registry in files with credentials. Source: moby, `registry.IndexServer`.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// An engine that exchanges images with registries.
#[derive(Debug)]
pub struct Exchange {
    engine: Engine,
    /// A file with credentials, as `docker login` writes it.
    registries: Option<PathBuf>,
}

/// An image that was pulled from a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// `name@sha256:…`: always this image.
    pub reference: String,
    pub labels: HashMap<String, String>,
}

impl Exchange {
    /// # Errors
    /// [`RuntimeError::Engine`] if the engine is unavailable.
    pub fn connect(endpoint: &Path, registries: Option<PathBuf>) -> Result<Self, RuntimeError> {
        let engine = Engine::connect(endpoint, Timeouts::default())
            .map_err(|error| error.during("connecting to the engine"))?;
        Ok(Self { engine, registries })
    }

    /// Builds the packed directory as `reference`, with these labels, and pushes the image to its registry.
    /// Returns the reference for a pull, `name@sha256:…`.
    ///
    /// # Errors
    /// [`RuntimeError::BuildFailed`]: fixed by the author; [`RuntimeError::Engine`]: has the registry's message.
    pub async fn push(
        &self,
        context: &Path,
        name: &str,
        reference: &str,
        labels: HashMap<String, String>,
        progress: mpsc::Sender<String>,
    ) -> Result<String, RuntimeError> {
        let image = ImageBuild::new(context.to_owned(), name, reference, progress.clone());
        let build = Build {
            image,
            labels,
            limits: BuildLimits::default(),
            look: format!("aod-push-look-{}", std::process::id()),
            registries: self.registries.as_deref(),
        };
        image::build::build(&self.engine, build).await?;
        let credentials = self.credentials(reference)?;
        let (repository, tag) = split(reference);
        let options = PushImageOptionsBuilder::default().tag(tag).build();
        let pushed = self
            .engine
            .docker
            .push_image(repository, Some(options), credentials);
        let mut pushed = pushed.boxed();
        let failed = |error: CallError| error.during("pushing an image");
        while let Some(info) = pushed
            .try_next()
            .await
            .map_err(CallError::from)
            .map_err(failed)?
        {
            if let Some(refusal) = info.error_detail.and_then(|detail| detail.message) {
                let refused = CallError::Answered {
                    status: 403,
                    message: refusal,
                };
                return Err(failed(refused));
            }
            if let Some(status) = info.status {
                let _ = progress.try_send(status);
            }
        }
        self.digest_of(reference).await
    }

    /// Pulls an image and returns its facts.
    ///
    /// # Errors
    /// [`RuntimeError::Engine`] has the registry's message.
    pub async fn pull(&self, reference: &str) -> Result<Pulled, RuntimeError> {
        let credentials = self.credentials(reference)?;
        let (repository, tag) = split(reference);
        let options = CreateImageOptionsBuilder::default()
            .from_image(repository)
            .tag(tag)
            .build();
        let pulled = self
            .engine
            .docker
            .create_image(Some(options), None, credentials);
        let failed = |error: CallError| error.during("pulling an image");
        let whole: Result<Vec<_>, _> = pulled.map_err(CallError::from).try_collect().await;
        whole.map_err(failed)?;
        let inspected = image::inspect(&self.engine, reference)
            .await
            .map_err(failed)?;
        let labels = inspected.and_then(|image| image.config?.labels);
        Ok(Pulled {
            reference: self.digest_of(reference).await?,
            labels: labels.unwrap_or_default(),
        })
    }

    async fn digest_of(&self, reference: &str) -> Result<String, RuntimeError> {
        let inspected = image::inspect(&self.engine, reference)
            .await
            .map_err(|error| error.during("inspecting an image"))?;
        let digests = inspected.and_then(|image| image.repo_digests);
        let (repository, _) = split(reference);
        let wanted = format!("{repository}@");
        let mut digests = digests.into_iter().flatten();
        digests
            .find(|digest| digest.starts_with(&wanted))
            .ok_or_else(|| RuntimeError::ImageMissing {
                image: reference.to_owned(),
            })
    }

    fn credentials(&self, reference: &str) -> Result<Option<DockerCredentials>, RuntimeError> {
        let Some(path) = &self.registries else {
            return Ok(None);
        };
        let mut all = registries::read(path).map_err(|source| RuntimeError::Engine {
            action: "reading the credentials for registries",
            source,
        })?;
        Ok(all.remove(registry_of(reference)))
    }
}

/// The registry of a reference: its first part, if that is a host.
fn registry_of(reference: &str) -> &str {
    match reference.split_once('/') {
        Some((host, _)) if host == "localhost" || host.contains(['.', ':']) => host,
        _ => DOCKER_HUB,
    }
}

/// Name and tag, `latest` by default.
fn split(reference: &str) -> (&str, &str) {
    match reference.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (reference, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_names_its_registry_and_its_tag() {
        for (reference, registry, name, tag) in [
            ("one", DOCKER_HUB, "one", "latest"),
            ("team/one:2", DOCKER_HUB, "team/one", "2"),
            ("host:5000/one", "host:5000", "host:5000/one", "latest"),
            (
                "host.example/a/b:1",
                "host.example",
                "host.example/a/b",
                "1",
            ),
            ("localhost/one", "localhost", "localhost/one", "latest"),
        ] {
            assert_eq!(registry_of(reference), registry, "{reference}");
            assert_eq!(split(reference), (name, tag), "{reference}");
        }
    }
}
