//! What others need to check a tree of runs without its cluster.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The answer with a bundle says whose tree it is.
pub const TREE_HEADER: &str = "aod-tree";

/// What a gateway seals with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SealKeyView {
    /// Ed25519, 64 hexadecimal digits.
    pub public_key: String,
}
