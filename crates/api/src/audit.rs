//! Types for the offline verification of a tree of runs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Id of the root, in the answer that contains a bundle.
pub const TREE_HEADER: &str = "aod-tree";

/// The public key of a gateway's seals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SealKeyView {
    /// Ed25519, 64 hexadecimal digits.
    pub public_key: String,
}
