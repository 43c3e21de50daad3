//! Peers that hear each other on the slowest machine: a node may only wait a moment for answers, and a busy machine
//! delivers them later.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aod_domain::digest::Digest;
use aod_domain::id::NodeId;
use aod_domain::peers::Answer;
use aod_jetstream::NatsPeers;
use aod_ports::BoxError;
use aod_ports::peers::{Holder, IsEnough, Peers, Piece};
use async_trait::async_trait;
use tokio::sync::Barrier;

/// Maximum time until other nodes answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The peers of a node that repeats its first question until all other nodes have answered, and its requests until they
/// are answered.
#[derive(Debug)]
pub(crate) struct Attentive {
    peers: NatsPeers,
    /// The number of other nodes that answer the first question.
    others: usize,
    /// The nodes that ask their first question concurrently. None has an answer before all have heard each other.
    askers: Arc<Barrier>,
    has_asked: AtomicBool,
}

impl Attentive {
    pub(crate) fn new(peers: NatsPeers, others: usize, askers: Arc<Barrier>) -> Self {
        Self {
            peers,
            others,
            askers,
            has_asked: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl Peers for Attentive {
    fn me(&self) -> NodeId {
        self.peers.me()
    }

    async fn ask(&self, digest: Digest, is_enough: IsEnough<'_>) -> Result<Vec<Answer>, BoxError> {
        if self.has_asked.swap(true, Ordering::Relaxed) {
            return self.peers.ask(digest, is_enough).await;
        }
        self.askers.wait().await;
        let deadline = Instant::now() + PATIENCE;
        let answers = loop {
            let answers = self.peers.ask(digest, is_enough).await?;
            if answers.len() >= self.others || is_enough(&answers) {
                break answers;
            }
            assert!(Instant::now() < deadline, "{answers:?}");
        };
        self.askers.wait().await;
        Ok(answers)
    }

    async fn piece(
        &self,
        peer: NodeId,
        digest: Digest,
        range: Range<u64>,
    ) -> Result<Piece, BoxError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let piece = self.peers.piece(peer, digest, range.clone()).await;
            if piece.is_ok() || Instant::now() >= deadline {
                return piece;
            }
        }
    }

    async fn serve(&self, holder: Arc<dyn Holder>) {
        self.peers.serve(holder).await;
    }
}
