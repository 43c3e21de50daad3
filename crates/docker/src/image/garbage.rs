//! Lists and removes the images that this cluster has built on this host.

use std::collections::HashMap;

use aod_ports::container_runtime::ObservedImage;
use aod_registry::REPOSITORY;
use bollard::models::ImageSummary;
use bollard::query_parameters::{ListImagesOptions, RemoveImageOptions};

use crate::engine::{CallError, Engine};
use crate::names::{LABEL_CLUSTER, LABEL_NAME};

/// Whether AOD gave an image this name: the tag of a capsule, or the name of a transfer.
fn is_own(name: &str) -> bool {
    let transfers = format!("/{REPOSITORY}");
    let is_transfer = || {
        let (repository, tag) = name.rsplit_once(':')?;
        let port = repository
            .strip_prefix("127.0.0.1:")?
            .strip_suffix(&transfers)?;
        // A push has a random tag, a pull the digest of the manifest.
        let is_digit =
            |character: char| character.is_ascii_digit() || ('a'..='f').contains(&character);
        let is_tag = [32, 64].contains(&tag.len()) && tag.chars().all(is_digit);
        port.parse::<u16>().ok().filter(|_| is_tag)
    };
    name.starts_with("aod/") || is_transfer().is_some()
}

/// All images of the cluster, without the layers below them.
pub(crate) async fn list(engine: &Engine, cluster: &str) -> Result<Vec<ObservedImage>, CallError> {
    let found = summaries(engine, cluster).await?;
    Ok(found.into_iter().filter_map(observed).collect())
}

/// Removes an image and returns whether it is deleted: an image with a container or a foreign name stays.
pub(crate) async fn remove(engine: &Engine, cluster: &str, image: &str) -> Result<bool, CallError> {
    let mut found = summaries(engine, cluster).await?.into_iter();
    let Some(found) = found.find(|found| found.id == image) else {
        return Ok(true);
    };
    let tags: Vec<String> = found
        .repo_tags
        .into_iter()
        .filter(|tag| tag != "<none>:<none>")
        .collect();
    if tags.iter().any(|tag| !is_own(tag)) {
        return Ok(false);
    }
    // The engine deletes an image with its last name.
    let names = if tags.is_empty() {
        vec![found.id]
    } else {
        tags
    };
    for name in names {
        let removal = engine
            .docker
            .remove_image(&name, None::<RemoveImageOptions>, None);
        match engine.call(engine.timeouts.remove, removal).await {
            Ok(_) => (),
            Err(error) if error.is_status(404) => (),
            Err(error) if error.is_status(409) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

async fn summaries(engine: &Engine, cluster: &str) -> Result<Vec<ImageSummary>, CallError> {
    let label = format!("{LABEL_CLUSTER}={cluster}");
    let options = ListImagesOptions {
        filters: Some(HashMap::from([("label".to_owned(), vec![label])])),
        ..ListImagesOptions::default()
    };
    engine.query(engine.docker.list_images(Some(options))).await
}

fn observed(image: ImageSummary) -> Option<ObservedImage> {
    let capsule = image.labels.get(LABEL_NAME)?.parse().ok()?;
    Some(ObservedImage {
        id: image.id,
        capsule,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_are_tags_of_capsules_and_names_of_transfers() {
        let [pushed, pulled] =
            [32, 64].map(|length| format!("127.0.0.1:40123/aod:{}", "0198c5ab".repeat(length / 8)));
        for own in ["aod/chart:0123", &pushed, &pulled] {
            assert!(is_own(own), "{own}");
        }
        for other in [
            "debian:bookworm",
            "registry.example/aod:1",
            "127.0.0.1:x/aod:1",
            "127.0.0.1:5000/other:1",
            "127.0.0.1:5000/aod:prod",
            "my/aod/chart:1",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }
}
