//! Removes unused images that no capsule is registered with any more.
//!
//! A run that started with a removed image gets it from the artifact store.

use std::time::Duration;

use aod_domain::capsule;
use aod_domain::subject;
use aod_ports::container_runtime::ObservedImage;
use tracing::{info, warn};

use crate::shared::Shared;
use aod_services::error::chain;

/// Maximum pause between two checks; shorter if the node keeps images for a short time.
const CHECK_EVERY_MAX: Duration = Duration::from_secs(600);

/// Minimum pause between two checks.
const CHECK_EVERY_MIN: Duration = Duration::from_secs(1);

/// Removes unused images, forever.
pub(crate) async fn collect_for_ever(shared: &Shared) {
    let keep = shared.config.image_keep;
    let every = (keep / 4).clamp(CHECK_EVERY_MIN, CHECK_EVERY_MAX);
    // For the first announcement.
    if let Ok(here) = shared.ports.runtime.built_images().await {
        shared.host.images.retain(&here);
    }
    loop {
        tokio::time::sleep(every).await;
        collect(shared).await;
    }
}

async fn collect(shared: &Shared) {
    let runtime = &shared.ports.runtime;
    let here = match runtime.built_images().await {
        Ok(here) => here,
        Err(error) => {
            warn!(error = %chain(&error), "the node cannot list the images of this host");
            return;
        }
    };
    shared.host.images.retain(&here);
    for image in here {
        let is_old = shared.host.images.unused_for(&image.id) >= shared.config.image_keep;
        // If the log does not answer, the next check decides.
        if !is_old || is_registered(shared, &image).await != Some(false) {
            continue;
        }
        match runtime.remove_image(&image.id).await {
            Ok(true) => {
                info!(image = image.id, capsule = %image.capsule, "the node removed an unused image");
            }
            // A container uses it.
            Ok(false) => (),
            Err(error) => {
                warn!(image = image.id, error = %chain(&error), "an image was not removed");
            }
        }
    }
}

/// Whether the capsule is registered with this image; none if the log does not answer. The latest registration of any
/// tenant counts: a node reloads the image of another tenant's capsule of that name on demand.
async fn is_registered(shared: &Shared, image: &ObservedImage) -> Option<bool> {
    let filter = subject::capsule(&image.capsule);
    let stored = shared.runs.log().read_last(&filter).await.ok()?;
    let Some(stored) = stored else {
        return Some(false);
    };
    let event = stored.decode::<capsule::Event>().ok()?.event;
    let registered = event.into_registration();
    Some(registered.is_some_and(|registered| registered.image.config_digest == image.id))
}
