//! A node: what operators ask of it, and what it must clear away when it looks at its containers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{NodeId, RunId};
use crate::subject::{self, Subject};

/// What operators asked of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// It takes no new work.
    #[serde(rename = "dev.aod.node.drain.v1")]
    DrainRequested {
        node: NodeId,
        requested_by: String,
        /// So long after this event it hands back what has not ended; without it, it never does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within_seconds: Option<u32>,
    },
    /// It takes work again.
    #[serde(rename = "dev.aod.node.resume.v1")]
    ResumeRequested { node: NodeId, requested_by: String },
}

impl Event {
    pub fn node(&self) -> NodeId {
        match self {
            Self::DrainRequested { node, .. } | Self::ResumeRequested { node, .. } => *node,
        }
    }

    pub fn subject(&self) -> Subject {
        match self {
            Self::DrainRequested { node, .. } => subject::node_event(*node, "drain"),
            Self::ResumeRequested { node, .. } => subject::node_event(*node, "resume"),
        }
    }
}

/// A container of this cluster, as seen on a container engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedContainer {
    pub name: String,
    pub run: RunId,
    /// Which lease of the run it was started under.
    pub attempt: u32,
    pub is_running: bool,
}

/// What to do about a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Kill it if it runs, and remove it with its volumes.
    Remove { name: String },
}

/// Compares what an engine has with the attempts that are held by their nodes: all else goes.
///
/// `held` are the leases of the log that no later event has ended, whichever node has them;
/// `mine` are the attempts that this very process is busy with, among them those it is removing.
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
    fn only_containers_that_nobody_holds_are_removed() {
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
