//! The place of a run in its tree.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// Where a run stands in its tree: how deep, and which calls led to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The signatures of the calls from the root to this run, its own last.
    pub signatures: Vec<Digest>,
}

impl Lineage {
    /// 0 for a root.
    pub fn depth(&self) -> u32 {
        u32::try_from(self.signatures.len().saturating_sub(1)).expect("bounded by DEPTH_MAX")
    }
}
