//! The images on this host and their last uses.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use aod_domain::manifest::CapsuleName;
use aod_ports::container_runtime::ObservedImage;
use aod_ports::presence::{IMAGES_MAX, image_key};
use tokio::time::Instant;

use crate::lock::lock;

/// The last use of each image in this process, and the images that are on this host.
#[derive(Debug, Default)]
pub(crate) struct LastUses(Mutex<HashMap<String, Use>>);

#[derive(Clone, Debug)]
struct Use {
    last: Instant,
    is_here: bool,
    /// The capsule that ran with it; none for an image that was only built here.
    capsule: Option<CapsuleName>,
}

impl Use {
    fn now() -> Self {
        Self {
            last: Instant::now(),
            is_here: false,
            capsule: None,
        }
    }
}

impl LastUses {
    /// Records a use of the image.
    pub(crate) fn touch(&self, image: &str) {
        self.change(image, |image| image.last = Instant::now());
    }

    /// Records a run of `capsule` with the image.
    pub(crate) fn run(&self, image: &str, capsule: &CapsuleName) {
        self.change(image, |image| {
            image.last = Instant::now();
            image.capsule = Some(capsule.clone());
        });
    }

    /// Whether `capsule` ran on this host within the time `lately`, by the images that are on this host.
    pub(crate) fn has_run(&self, capsule: &CapsuleName, lately: Duration) -> bool {
        lock(&self.0).values().any(|image| {
            image.is_here
                && image.capsule.as_ref() == Some(capsule)
                && image.last.elapsed() <= lately
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn capsule_has_run_here_while_its_image_is_here_and_used() {
        let (uses, hour) = (LastUses::default(), Duration::from_secs(3_600));
        let [chart, map] = ["chart", "map"].map(|name| name.parse::<CapsuleName>().unwrap());
        uses.run("one", &chart);
        assert!(!uses.has_run(&chart, hour), "its image is not here");
        uses.found("one");
        uses.found("built");
        assert!(uses.has_run(&chart, hour) && !uses.has_run(&map, hour));
        tokio::time::advance(hour + Duration::from_secs(1)).await;
        assert!(!uses.has_run(&chart, hour), "it ran long ago");
        uses.run("two", &chart);
        uses.retain(&[]);
        assert!(!uses.has_run(&chart, hour), "its images are removed");
    }
}
