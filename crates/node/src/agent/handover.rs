//! Selects a better-placed node for a launch: a node that has its files or its image, where this node would have to
//! fetch them.
//!
//! This node offers the launch to that node once, and waits a short time for the answer: only that node knows its free
//! capacity. If that node has none, or does not answer, the launch stays here. A node never offers a launch whose files
//! and image it has.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::capsule::Image;
use aod_domain::id::NodeId;
use aod_domain::placement::{LOCALITY_BYTES_MIN, Near, Spot, fits, preferred};
use aod_domain::run::Placement;
use aod_ports::presence::{NodeMember, image_key};
use aod_ports::work_queue::Offer;
use futures::StreamExt as _;
use tracing::{debug, warn};

use super::delivered::Delivered;
use super::fitness::Readiness;
use crate::shared::Shared;
use crate::shared::other_nodes::is_open;
use crate::work;
use aod_services::error::chain;

/// The part of the lease time that the other node may take to answer. It is present and answers from memory, but its
/// processors may be busy. Without an answer, the launch waits for the end of the lease.
const PATIENCE_PART: u32 = 6;

/// Pause before the node subscribes to offers again after a failure.
const RETRY: Duration = Duration::from_millis(500);

/// The files and the image that this node lacks for a launch, if another node may be better placed.
pub(crate) struct Missing {
    placement: Placement,
    near: Option<Near>,
    /// Digest and size.
    image: (String, u64),
}

impl Missing {
    /// For an admitted launch, only the files are known.
    pub(crate) fn of(shared: &Shared, delivered: &Delivered) -> Option<Self> {
        let placement = delivered.placement()?;
        let image = delivered.work().and_then(work::image);
        let image = image.filter(|image| !shared.host.images.is_here(&image.config_digest));
        let image_bytes = image.map_or(0, Image::size_bytes);
        let near = placement.near;
        let far = near.filter(|near| near.node != shared.id);
        let bytes = far.map_or(0, |near| near.bytes).saturating_add(image_bytes);
        (bytes >= LOCALITY_BYTES_MIN).then(|| Self {
            placement: placement.clone(),
            near,
            image: image.map_or_else(Default::default, |image| {
                (image.config_digest.clone(), image_bytes)
            }),
        })
    }
}

/// Offers the launch to a better-placed node; returns the launch if it stays here.
///
/// A node that does not answer may have taken the launch, or even returned it: this node leaves such a launch to the
/// queue, which delivers it again after the lease time.
pub(crate) async fn hand_over(
    shared: &Shared,
    delivered: Delivered,
    missing: &Missing,
) -> Option<Delivered> {
    let others = shared.others.list().await;
    let Some(to) = better(shared, missing, &others) else {
        return Some(delivered);
    };
    let now = shared.runs.clock().since_boot();
    let held = now.saturating_sub(delivered.received);
    let delivery = &delivered.delivery;
    let patience = shared.config.lease / PATIENCE_PART;
    match shared.ports.queue.offer(to, delivery, held, patience).await {
        Ok(false) => return Some(delivered),
        Ok(true) => debug!(run = %delivery.run, %to, "another node took the launch"),
        Err(error) => {
            let error = chain(&error);
            warn!(run = %delivery.run, %to, %error, "another node may have taken the launch");
        }
    }
    None
}

fn better(shared: &Shared, missing: &Missing, others: &[NodeMember]) -> Option<NodeId> {
    let (digest, image_bytes) = &missing.image;
    let here = Spot {
        node: shared.id,
        has_image: digest.is_empty(),
        running: 0,
        slots: 1,
    };
    let open = others
        .iter()
        .filter(|node| is_open(node, &missing.placement));
    let spots = open.map(|node| Spot {
        node: node.node,
        has_image: digest.is_empty() || has_image(node, digest),
        // It may have got free capacity since its announcement: always worth an offer.
        running: if missing.near.is_some_and(|near| near.node == node.node) {
            0
        } else {
            node.running
        },
        slots: node.slots,
    });
    preferred(missing.near, *image_bytes, &here, spots)
}

fn has_image(node: &NodeMember, digest: &str) -> bool {
    let key = image_key(digest);
    node.place.images.iter().any(|image| image == key)
}

/// Takes launches that other nodes offer, as long as this node has free capacity.
pub(crate) async fn listen(
    shared: &Arc<Shared>,
    readiness: Readiness,
    start: impl Fn(Delivered) -> Option<Delivered>,
) {
    loop {
        match shared.ports.queue.offers(shared.id).await {
            Ok(mut offers) => {
                while let Some(offer) = offers.next().await {
                    let is_ready = readiness.borrow().takes(offer.delivery.class);
                    take(shared, offer, is_ready, &start);
                }
            }
            Err(error) => {
                warn!(error = %chain(&error), "the node cannot receive offers from other nodes");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn take(
    shared: &Shared,
    offer: Offer,
    is_ready: bool,
    start: &impl Fn(Delivered) -> Option<Delivered>,
) {
    let now = shared.runs.clock().since_boot();
    let Some(received) = now.checked_sub(offer.held) else {
        return;
    };
    let delivered = Delivered::read(offer.delivery, received);
    let is_fit = is_ready
        && shared
            .host
            .disks
            .measure(now)
            .room
            .takes(delivered.delivery.class)
        && fits_here(shared, &delivered);
    let is_taken = is_fit && start(delivered).is_none();
    // If the answer gets lost, the other node leaves the launch alone.
    let _ = offer.answer.send(is_taken);
}

fn fits_here(shared: &Shared, delivered: &Delivered) -> bool {
    let (pools, equipment) = (&shared.config.pools, &shared.config.equipment);
    delivered
        .placement()
        .is_some_and(|run| fits(&run.pool, &run.requirements, pools, equipment).is_ok())
}
