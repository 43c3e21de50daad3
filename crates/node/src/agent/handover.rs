//! Selects a better-placed node for a launch: a node that has its files or its image, where this node would have to
//! fetch them.
//!
//! This node offers the launch to that node once, and waits a short time for the answer: only that node knows its free
//! capacity. If that node has none, or does not answer, the launch stays here. A node never offers a launch whose files
//! and image it has.

use aod_domain::capsule::Image;
use aod_domain::id::NodeId;
use aod_domain::placement::{LOCALITY_BYTES_MIN, Near, Spot, preferred};
use aod_domain::run::Placement;
use aod_ports::presence::{NodeMember, image_key};
use tracing::debug;

use super::delivered::Delivered;
use crate::shared::Shared;
use crate::shared::other_nodes::is_open;
use crate::work;
use aod_services::error::chain;

/// The part of the lease time that the other node may take to answer. It is present and answers from memory, but its
/// processors may be busy.
const PATIENCE_PART: u32 = 6;

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
pub(crate) async fn hand_over(
    shared: &Shared,
    delivered: Delivered,
    missing: &Missing,
) -> Option<Delivered> {
    let others = shared.others.list().await;
    let Some(to) = better(shared, missing, &others) else {
        return Some(delivered);
    };
    let asked = delivered.asked;
    let held = || shared.runs.clock().since_boot().saturating_sub(asked);
    let delivery = &delivered.delivery;
    let patience = shared.config.lease / PATIENCE_PART;
    match shared
        .ports
        .queue
        .offer(to, delivery, &held, patience)
        .await
    {
        Ok(false) => Some(delivered),
        Ok(true) => {
            debug!(run = %delivery.run, %to, "the launch is handed over to another node");
            None
        }
        Err(error) => {
            let error = chain(&error);
            debug!(run = %delivery.run, %to, %error, "another node did not answer an offer");
            Some(delivered)
        }
    }
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
