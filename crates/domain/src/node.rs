//! Commands of operators to a node, and the containers that the node must remove.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{NodeId, RunId};
use crate::subject::{self, Subject};

/// A command of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// The node takes no new runs.
    #[serde(rename = "dev.aod.node.drained.v1")]
    Drained {
        node: NodeId,
        requested_by: String,
        /// Time after this event when the node returns its unfinished runs to the queue; without it, it never does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within_seconds: Option<u32>,
    },
    /// The node takes runs again.
    #[serde(rename = "dev.aod.node.resumed.v1")]
    Resumed { node: NodeId, requested_by: String },
}

impl Event {
    pub fn node(&self) -> NodeId {
        match self {
            Self::Drained { node, .. } | Self::Resumed { node, .. } => *node,
        }
    }

    pub fn subject(&self) -> Subject {
        match self {
            Self::Drained { node, .. } => subject::node_event(*node, "drained"),
            Self::Resumed { node, .. } => subject::node_event(*node, "resumed"),
        }
    }
}

/// A container of a node on its container engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedContainer {
    pub name: String,
    pub run: RunId,
    /// The lease that the container was started under.
    pub attempt: u32,
    pub is_running: bool,
}

/// An action on a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Kill it if it runs, and remove it with its volumes.
    Remove { name: String },
}

/// Compares the containers of a node with the attempts that nodes hold: all other containers must go.
///
/// `held` are all leases in the log that no later event has ended, on any node; `mine` are the attempts of this
/// process, including those that it is removing.
pub fn plan(
    observed: &[ObservedContainer],
    held: &BTreeSet<(RunId, u32)>,
    mine: &BTreeSet<(RunId, u32)>,
) -> Vec<Action> {
    observed
        .iter()
        .filter(|container| {
            let key = (container.run, container.attempt);
            !held.contains(&key) && !mine.contains(&key)
        })
        .map(|container| Action::Remove {
            name: container.name.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_containers_without_a_holder_are_removed() {
        let run = RunId::root_of(Uuid::from_u128(1));
        let container = |attempt| ObservedContainer {
            name: format!("c{attempt}"),
            run,
            attempt,
            is_running: true,
        };
        let observed = [container(1), container(2), container(3)];
        let actions = plan(
            &observed,
            &BTreeSet::from([(run, 2)]),
            &BTreeSet::from([(run, 3)]),
        );
        assert_eq!(actions, [Action::Remove { name: "c1".into() }]);
    }
}
