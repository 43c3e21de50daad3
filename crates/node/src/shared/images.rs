//! The images on this host and their last uses.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use aod_ports::container_runtime::ObservedImage;
use aod_ports::presence::{IMAGES_MAX, image_key};
use tokio::time::Instant;

use crate::lock::lock;

/// The last use of each image in this process, and the images that are on this host.
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
    /// Records a use of the image.
    pub(crate) fn touch(&self, image: &str) {
        self.change(image, |image| image.last = Instant::now());
    }

    /// Records that the image is on this host.
    pub(crate) fn found(&self, image: &str) {
        self.change(image, |image| image.is_here = true);
    }

    fn change<T>(&self, image: &str, change: impl FnOnce(&mut Use) -> T) -> T {
        let mut uses = lock(&self.0);
        change(uses.entry(image.to_owned()).or_insert_with(Use::now))
    }

    pub(crate) fn is_here(&self, image: &str) -> bool {
        lock(&self.0).get(image).is_some_and(|image| image.is_here)
    }

    /// The keys of the images on this host for announcements, the last used first.
    pub(crate) fn announced(&self) -> Vec<String> {
        let uses = lock(&self.0);
        let mut here: Vec<(Instant, &str)> = uses
            .iter()
            .filter(|(_, image)| image.is_here)
            .map(|(id, image)| (image.last, image_key(id)))
            .collect();
        here.sort_unstable_by(|one, other| other.cmp(one));
        let here = here.into_iter().take(IMAGES_MAX);
        here.map(|(_, key)| key.to_owned()).collect()
    }

    /// The time since the last use; zero for an unknown image.
    pub(crate) fn unused_for(&self, image: &str) -> Duration {
        self.change(image, |image| image.last.elapsed())
    }

    /// Forgets images that are no longer on this host.
    pub(crate) fn retain(&self, here: &[ObservedImage]) {
        let mut uses = lock(&self.0);
        uses.retain(|id, _| here.iter().any(|image| image.id == *id));
        drop(uses);
        for image in here {
            self.found(&image.id);
        }
    }
}
