//! Saves images as tar files and loads them into another engine.

use std::collections::HashSet;
use std::path::Path;

use aod_ports::container_runtime::RuntimeError;
use bollard::query_parameters::{ImportImageOptions, ListImagesOptions, RemoveImageOptions};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use thiserror::Error;
use tokio_util::io::ReaderStream;
use tracing::warn;

use crate::engine::{CallError, Engine};
use crate::image;

/// An archive that does not contain the expected image.
#[derive(Debug, Error)]
#[error("the archive contains {loaded:?}, expected {expected}")]
struct WrongImage {
    expected: String,
    loaded: Vec<String>,
}

/// The image as a tar stream. An incomplete stream always ends with an error.
pub(crate) async fn save(
    engine: &Engine,
    image: &str,
) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> {
    let action = "saving an image";
    if !image::has(engine, image)
        .await
        .map_err(|error| error.during(action))?
    {
        return Err(RuntimeError::ImageMissing {
            image: image.to_owned(),
        });
    }
    let pieces = engine.docker.export_image(image).boxed();
    let read = (engine.clone(), Some(pieces));
    Ok(stream::unfold(read, async move |(engine, pieces)| {
        let mut pieces = pieces?;
        match engine.next(engine.timeouts.stream, &mut pieces).await {
            Ok(Some(bytes)) => Some((Ok(bytes), (engine, Some(pieces)))),
            Ok(None) => None,
            Err(error) => Some((Err(error.during(action)), (engine, None))),
        }
    })
    .boxed())
}

/// Loads an archive, checks that it contains `image`, and removes other images that it contains.
pub(crate) async fn load(engine: &Engine, image: &str, archive: &Path) -> Result<(), RuntimeError> {
    let action = "loading an image";
    let failed = |error: CallError| error.during(action);
    if image::has(engine, image).await.map_err(failed)? {
        return Ok(());
    }
    let before = ids(engine).await.map_err(failed)?;
    let file = tokio::fs::File::open(archive)
        .await
        .map_err(|error| RuntimeError::Engine {
            action,
            source: Box::new(error),
        })?;
    let loaded = feed(engine, file).await.map_err(failed)?;
    if image::has(engine, image).await.map_err(failed)? {
        return Ok(());
    }
    for name in &loaded {
        remove_unless_known(engine, name, &before).await;
    }
    let wrong = WrongImage {
        expected: image.to_owned(),
        loaded,
    };
    Err(RuntimeError::Engine {
        action,
        source: Box::new(wrong),
    })
}

/// Sends the archive to the engine and returns the ids and tags that the engine reports.
async fn feed(engine: &Engine, file: tokio::fs::File) -> Result<Vec<String>, CallError> {
    let options = ImportImageOptions {
        quiet: true,
        ..ImportImageOptions::default()
    };
    let archive = ReaderStream::new(file);
    let mut reports = engine
        .docker
        .import_image_stream(options, archive, None)
        .boxed();
    let mut loaded = Vec::new();
    while let Some(report) = engine.next(engine.timeouts.load, &mut reports).await? {
        let text = report.stream.unwrap_or_default();
        // Source: moby `image/tarexport/load.go`, "Loaded image: " and "Loaded image ID: ".
        let names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Loaded image"));
        loaded.extend(names.filter_map(|rest| Some(rest.split_once(": ")?.1.to_owned())));
    }
    Ok(loaded)
}

async fn ids(engine: &Engine) -> Result<HashSet<String>, CallError> {
    let options = ListImagesOptions {
        all: true,
        ..ListImagesOptions::default()
    };
    let images = engine
        .query(engine.docker.list_images(Some(options)))
        .await?;
    Ok(images.into_iter().map(|image| image.id).collect())
}

/// Removes an image of a wrong archive, unless it existed before.
async fn remove_unless_known(engine: &Engine, name: &str, before: &HashSet<String>) {
    let Ok(Some(found)) = image::inspect(engine, name).await else {
        return;
    };
    if found.id.is_none_or(|id| before.contains(&id)) {
        return;
    }
    let options = RemoveImageOptions {
        force: true,
        ..RemoveImageOptions::default()
    };
    let removal = engine.docker.remove_image(name, Some(options), None);
    if let Err(error) = engine.call(engine.timeouts.remove, removal).await {
        warn!(image = name, %error, "an image of a wrong archive cannot be removed");
    }
}
