//! Knows which images are here, and takes those away that no capsule is registered with any more, once they are not
//! used either.
//!
//! Nothing is lost: a run that began with such an image gets it from the artifact store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aod_domain::capsule;
use aod_domain::manifest::CapsuleName;
use aod_domain::subject;
use aod_ports::container_runtime::ObservedImage;
use aod_ports::presence::{IMAGES_MAX, image_key};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::calls::chain;
use crate::shared::Shared;

/// How often they are looked at, at the most; more often where they are kept for a short time.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(600);

/// How often they are looked at, at the least.
const LOOK_EVERY_MIN: Duration = Duration::from_secs(1);

/// When each image was last needed here, as far as this process knows, and which are here.
#[derive(Debug, Default)]
pub(crate) struct LastUses(Mutex<HashMap<String, Use>>);

#[derive(Clone, Copy, Debug)]
struct Use {
    last: Instant,
    is_here: bool,
}

impl Use {
    fn now() -> Self {
        Self {
            last: Instant::now(),
            is_here: false,
        }
    }
}

impl LastUses {
    /// Somebody is about to need the image.
    pub(crate) fn touch(&self, image: &str) {
        let mut uses = self.lock();
        uses.entry(image.to_owned()).or_insert_with(Use::now).last = Instant::now();
    }

    /// The image is here.
    pub(crate) fn found(&self, image: &str) {
        let mut uses = self.lock();
        uses.entry(image.to_owned())
            .or_insert_with(Use::now)
            .is_here = true;
    }

    pub(crate) fn is_here(&self, image: &str) -> bool {
        self.lock().get(image).is_some_and(|image| image.is_here)
    }

    /// Those that are here, the last used first, as others are told of them.
    pub(crate) fn told(&self) -> Vec<String> {
        let uses = self.lock();
        let mut here: Vec<(Instant, &str)> = uses
            .iter()
            .filter(|(_, image)| image.is_here)
            .map(|(id, image)| (image.last, image_key(id)))
            .collect();
        here.sort_unstable_by(|one, other| other.cmp(one));
        let here = here.into_iter().take(IMAGES_MAX);
        here.map(|(_, key)| key.to_owned()).collect()
    }

    /// Since when nobody has needed it; since now for one that is seen for the first time.
    fn unused_for(&self, image: &str) -> Duration {
        self.lock()
            .entry(image.to_owned())
            .or_insert_with(Use::now)
            .last
            .elapsed()
    }

    /// Forgets those that are not here any more.
    fn retain(&self, here: &[ObservedImage]) {
        let mut uses = self.lock();
        uses.retain(|id, _| here.iter().any(|image| image.id == *id));
        drop(uses);
        for image in here {
            self.found(&image.id);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Use>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at them again and again.
pub(crate) async fn collect_for_ever(shared: &Shared) {
    let keep = shared.config.image_keep;
    let every = (keep / 4).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
    // Others want to know what is here.
    if let Ok(here) = shared.ports.runtime.built_images().await {
        shared.image_uses.retain(&here);
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
            warn!(error = %chain(&error), "the images of this host cannot be listed");
            return;
        }
    };
    shared.image_uses.retain(&here);
    for image in here {
        let is_old = shared.image_uses.unused_for(&image.id) >= shared.config.image_keep;
        // What the log does not tell now is left for the next time.
        if !is_old || is_registered(shared, &image).await != Some(false) {
            continue;
        }
        match runtime.remove_image(&image.id).await {
            Ok(true) => {
                info!(image = image.id, capsule = %image.capsule, "an image that is not used any more is gone");
            }
            // A container has it.
            Ok(false) => (),
            Err(error) => {
                warn!(image = image.id, error = %chain(&error), "an image was not removed");
            }
        }
    }
}

/// Whether the capsule is registered with this image; nothing if the log does not answer.
async fn is_registered(shared: &Shared, image: &ObservedImage) -> Option<bool> {
    let registered = registration(shared, &image.capsule).await?;
    Some(registered.is_some_and(|registration| registration.image.config_digest == image.id))
}

/// The latest, whichever tenant's it is: another's image of that name is loaded again when it is needed.
async fn registration(
    shared: &Shared,
    capsule: &CapsuleName,
) -> Option<Option<capsule::Registration>> {
    let filter = subject::registrations(capsule);
    let stored = shared.runs.log().read_last(&filter).await.ok()?;
    let Some(stored) = stored else {
        return Some(None);
    };
    let recorded = stored.decode::<capsule::Event>().ok()?;
    let capsule::Event::Registered(registration) = recorded.event;
    Some(Some(registration))
}
