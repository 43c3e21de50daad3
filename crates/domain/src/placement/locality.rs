//! Prefers nodes that already have the files of a run.

use serde::{Deserialize, Serialize};

use crate::id::NodeId;

/// Minimum size at which a node is preferred, in bytes: fetching less is as fast as asking another node.
pub const LOCALITY_BYTES_MIN: u64 = 1 << 20;

/// The node that has the files of a run, because it produced them or fetched them for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Near {
    pub node: NodeId,
    /// Total size of the files.
    pub bytes: u64,
}

/// The data that a candidate node would have to fetch, and its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub node: NodeId,
    pub has_image: bool,
    pub running: usize,
    pub slots: usize,
}

impl Spot {
    /// Bytes of files and image that the node must fetch.
    fn missing_bytes(&self, near: Option<Near>, image_bytes: u64) -> u64 {
        let files = near.filter(|near| near.node != self.node);
        let image = if self.has_image { 0 } else { image_bytes };
        files.map_or(0, |near| near.bytes).saturating_add(image)
    }
}

/// The best of `others` if it is better than `here`: it has the least to fetch, far less than `here`, and among equals
/// the lowest load. None if `here` is as good.
pub fn preferred(
    near: Option<Near>,
    image_bytes: u64,
    here: &Spot,
    others: impl IntoIterator<Item = Spot>,
) -> Option<NodeId> {
    let own = here.missing_bytes(near, image_bytes);
    if own < LOCALITY_BYTES_MIN {
        return None;
    }
    let with_free_slots = others.into_iter().filter(|spot| spot.running < spot.slots);
    let best = with_free_slots.min_by_key(|spot| {
        let missing = spot.missing_bytes(near, image_bytes);
        // Load as a thousandth of the slots, so that large nodes get more runs.
        (missing, spot.running * 1_000 / spot.slots, spot.node)
    })?;
    let gain = own.saturating_sub(best.missing_bytes(near, image_bytes));
    (gain >= LOCALITY_BYTES_MIN).then_some(best.node)
}
