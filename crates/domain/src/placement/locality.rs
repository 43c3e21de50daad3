//! Which node has what a run needs already.

use serde::{Deserialize, Serialize};

use crate::id::NodeId;

/// Below so many bytes nobody is preferred, in bytes: they are fetched in the time that it takes to ask another node.
pub const LOCALITY_BYTES_MIN: u64 = 1 << 20;

/// The node that has the files of a run, since it made them or brought them for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Near {
    pub node: NodeId,
    /// How much there is of them.
    pub bytes: u64,
}

/// What a node that could take a run would have to fetch, and how busy it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub node: NodeId,
    pub has_image: bool,
    pub running: usize,
    pub slots: usize,
}

impl Spot {
    /// What it must fetch of files and image.
    fn missing_bytes(&self, near: Option<Near>, image_bytes: u64) -> u64 {
        let files = near.filter(|near| near.node != self.node);
        let image = if self.has_image { 0 } else { image_bytes };
        files.map_or(0, |near| near.bytes).saturating_add(image)
    }
}

/// Which of `others` a run is better off on than `here`: with the least to fetch, of several the emptiest, and far less
/// to fetch than here. None if here is as good.
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
    let with_room = others.into_iter().filter(|spot| spot.running < spot.slots);
    let best = with_room.min_by_key(|spot| {
        let missing = spot.missing_bytes(near, image_bytes);
        // Running runs in thousandths of the slots, so that large nodes get more.
        (missing, spot.running * 1_000 / spot.slots, spot.node)
    })?;
    let gain = own.saturating_sub(best.missing_bytes(near, image_bytes));
    (gain >= LOCALITY_BYTES_MIN).then_some(best.node)
}
