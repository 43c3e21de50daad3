//! Peers: the other nodes of a cluster, from which a node fetches artifacts instead of from the store.
//!
//! As with a store, a node that knows a digest may read its bytes. Nobody verifies the bytes of a peer but the node that
//! has fetched them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aod_domain::digest::Digest;
use aod_domain::id::NodeId;
use aod_domain::peers::{Answer, Standing};
use async_trait::async_trait;
use bytes::Bytes;

use crate::BoxError;

/// The answer to a request for a piece of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Bytes(Bytes),
    /// Not yet: the peer is asking or fetching itself and has received `fetched_bytes`, or it serves too many pieces.
    Wait {
        fetched_bytes: u64,
    },
    /// The peer does not have it.
    Missing,
}

/// The artifacts that this node offers to its peers.
#[async_trait]
pub trait Holder: Send + Sync {
    /// The node's relation to an artifact that the peer `asker` needs, if it has one. Answers from memory.
    fn standing(&self, digest: Digest, asker: NodeId) -> Option<Standing>;

    /// A piece of an artifact, of at most [`PIECE_BYTES_MAX`](aod_domain::peers::PIECE_BYTES_MAX). Reads only complete
    /// files of this node's cache, never the store.
    async fn piece(&self, digest: Digest, range: Range<u64>) -> Piece;
}

/// Whether a node needs no more answers than these.
pub type IsEnough<'a> = &'a (dyn for<'b> Fn(&'b [Answer]) -> bool + Send + Sync);

/// The other nodes, as one node sees them.
#[async_trait]
pub trait Peers: fmt::Debug + Send + Sync + 'static {
    /// The id of this node.
    fn me(&self) -> NodeId;

    /// Asks all peers about an artifact. Returns their answers after
    /// [`ANSWERS_WITHIN`](aod_domain::peers::ANSWERS_WITHIN); earlier if there is no peer, or when `is_enough` accepts
    /// the answers so far.
    ///
    /// # Errors
    ///
    /// This node cannot ask; later questions may fail in the same way.
    async fn ask(&self, digest: Digest, is_enough: IsEnough<'_>) -> Result<Vec<Answer>, BoxError>;

    /// Requests the bytes of `range` from `peer`.
    ///
    /// # Errors
    ///
    /// The peer is offline (known immediately), or did not answer within the deadline of one piece.
    async fn piece(
        &self,
        peer: NodeId,
        digest: Digest,
        range: Range<u64>,
    ) -> Result<Piece, BoxError>;

    /// Answers peers from `holder`, with a bounded number of pieces at a time, until the future is dropped. Only one
    /// call at a time serves.
    async fn serve(&self, holder: Arc<dyn Holder>);
}
