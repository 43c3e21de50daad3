//! Fetches new versions of capsules that ran on this host lately, before their first run asks for them.
//!
//! A fetch costs no run anything: the node makes one at a time, and none while its disks are short of space. After a
//! failure, the first run fetches the image.

use aod_domain::capsule::{Event, Image, Registration};
use aod_domain::disk::Room;
use aod_domain::subject::CAPSULES;
use aod_ports::event_log::{From, StoredEvent};
use aod_services::error::chain;
use tokio::sync::mpsc;
use tracing::{debug, info};

use super::orders::follow;
use crate::shared::Shared;

/// Maximum number of versions that wait for their fetch; a node that fetches more slowly leaves the others to their runs.
const WAITING_MAX: usize = 256;

/// Fetches new versions until the node stops.
pub(super) async fn prefetch_for_ever(shared: &Shared) {
    let (sender, mut registered) = mpsc::channel(WAITING_MAX);
    let listen = follow(shared, CAPSULES, From::Now, |event| {
        if let Some(registration) = registration(event) {
            let _ = sender.try_send(registration);
        }
    });
    let fetch = async {
        while let Some(registration) = registered.recv().await {
            if is_wanted(shared, &registration) {
                fetch(shared, &registration.image).await;
            }
        }
    };
    tokio::join!(listen, fetch);
}

fn registration(event: &StoredEvent) -> Option<Registration> {
    event.decode::<Event>().ok()?.event.into_registration()
}

fn is_wanted(shared: &Shared, registration: &Registration) -> bool {
    let (host, config) = (&shared.host, &shared.config);
    let now = shared.runs.clock().since_boot();
    host.images.has_run(&registration.name, config.image_keep)
        && !host.images.is_here(&registration.image.config_digest)
        && config.pools.contains(&registration.pool)
        && host.disks.measure(now).room == Room::Enough
}

async fn fetch(shared: &Shared, image: &Image) {
    let id = &image.config_digest;
    let fetched = shared
        .ports
        .runtime
        .fetch_image(image, &shared.ports.images);
    match fetched.await {
        Ok(bytes) => {
            shared.host.images.touch(id);
            shared.host.images.found(id);
            info!(
                image = id,
                bytes, "the node fetched a new version of a capsule before its first run"
            );
        }
        Err(error) => debug!(image = id, error = %chain(&error), "a new version was not fetched"),
    }
}
