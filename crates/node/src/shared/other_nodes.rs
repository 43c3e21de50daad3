//! The other nodes, and the runs that this node has left to them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aod_domain::id::{NodeId, RunId};
use aod_domain::placement::fits;
use aod_domain::run::{Placement, Refused};
use aod_ports::presence::{Member, NodeMember, Presence};
use tokio::time::Instant;
use tracing::debug;

use crate::lock::lock;
use aod_services::error::chain;

/// How long the list of nodes is valid: about the time between two announcements of a node.
const MEMBERS_FRESH: Duration = Duration::from_secs(1);

/// Maximum number of remembered runs; the node may lease an older one again, and refuses it again.
const REMEMBERED_MAX: usize = 1_024;

/// All nodes but this one.
#[derive(Debug)]
pub(crate) struct OtherNodes {
    presence: Arc<dyn Presence>,
    this: NodeId,
    /// A recent list.
    known: Mutex<Option<(Instant, Arc<[NodeMember]>)>>,
    /// The runs that this node has refused since its start.
    refused: Mutex<VecDeque<RunId>>,
}

impl OtherNodes {
    pub(crate) fn new(presence: Arc<dyn Presence>, this: NodeId) -> Self {
        Self {
            presence,
            this,
            known: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// The other nodes; none if presence does not answer.
    pub(crate) async fn list(&self) -> Arc<[NodeMember]> {
        let known = lock(&self.known).clone();
        if let Some((at, others)) = known
            && at.elapsed() < MEMBERS_FRESH
        {
            return others;
        }
        let members = match self.presence.members().await {
            Ok(members) => members,
            Err(error) => {
                debug!(error = %chain(&error), "the node cannot list the other nodes");
                return Arc::default();
            }
        };
        let others = members.into_iter().filter_map(|member| match member {
            Member::Node(node) if node.node != self.this => Some(node),
            Member::Node(_) | Member::Gateway(_) => None,
        });
        let others: Arc<[NodeMember]> = others.collect();
        *lock(&self.known) = Some((Instant::now(), Arc::clone(&others)));
        others
    }

    /// Whether another node takes work, meets the requirements of `placement`, and has not refused the run.
    pub(crate) async fn may_take(&self, placement: &Placement, refusals: &[Refused]) -> bool {
        let refused: BTreeSet<NodeId> = refusals.iter().map(|refused| refused.node).collect();
        let others = self.list().await;
        let mut others = others.iter();
        others.any(|node| !refused.contains(&node.node) && is_open(node, placement))
    }

    /// Whether this node has refused `run`.
    pub(crate) fn is_left(&self, run: RunId) -> bool {
        lock(&self.refused).contains(&run)
    }

    /// Records that this node has refused `run`.
    pub(crate) fn leave(&self, run: RunId) {
        let mut refused = lock(&self.refused);
        if refused.len() >= REMEMBERED_MAX {
            refused.pop_front();
        }
        refused.push_back(run);
    }
}

/// Whether `node` takes work, and meets the requirements of `placement`.
pub(crate) fn is_open(node: &NodeMember, placement: &Placement) -> bool {
    let (pools, equipment) = (&node.pools, &node.place.equipment);
    node.takes(placement.class)
        && fits(&placement.pool, &placement.requirements, pools, equipment).is_ok()
}
