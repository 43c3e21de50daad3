//! From where a node fetches a part of an image, an artifact that other nodes may have: from one of them, or from the
//! artifact store.
//!
//! A node that lacks an artifact asks all other nodes. If one has the artifact, the node fetches it from there. If one is
//! fetching it, the node waits for that one. If several nodes ask concurrently, the node with the lowest id fetches from
//! the store: each hears the others' questions, so all of them choose the same one.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::NodeId;

/// Minimum size of an artifact that nodes fetch from each other, in bytes: the store sends less as fast as another node
/// answers.
pub const SHARED_BYTES_MIN: u64 = 1 << 20;

/// Maximum size of one piece, in bytes: half of NATS' default `max_payload`, as for chunks in the broker's store.
pub const PIECE_BYTES_MAX: u64 = 512 * 1024;

/// Maximum number of nodes that a node tries for one artifact, then it fetches from the store.
pub const ATTEMPTS_MAX: usize = 8;

/// How long a node waits for the answers to a question: messages of a busy host are late, and two nodes that do not hear
/// each other both read the store.
pub const ANSWERS_WITHIN: Duration = Duration::from_millis(300);

/// How long a node waits for progress of another node.
pub const PROGRESS_WITHIN: Duration = Duration::from_secs(10);

/// Minimum progress in this time, in bytes.
const PROGRESS_BYTES_MIN: u64 = 1 << 20;

/// The relation of a node to an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The node has the complete artifact in its cache.
    Whole,
    /// The node is fetching it from the store.
    Fetching,
    /// The node is asking the other nodes.
    Asking,
}

/// The answer of a node that has, fetches or needs the artifact; other nodes do not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub node: NodeId,
    pub standing: Standing,
}

/// Where to fetch an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Store,
    /// That node, now or after it has fetched the artifact itself.
    Node(NodeId),
}

/// Selects the source for the node `me`, which is asking, from the `answers` so far. None if later answers can change
/// the choice; never none if `is_complete`, that is, when no more answers follow.
///
/// `failed` are nodes from which `me` could not fetch this artifact.
pub fn source(
    me: NodeId,
    answers: &[Answer],
    failed: &BTreeSet<NodeId>,
    is_complete: bool,
) -> Option<Source> {
    if failed.len() >= ATTEMPTS_MAX {
        return Some(Source::Store);
    }
    let usable = |answer: &&Answer| answer.node != me && !failed.contains(&answer.node);
    let best = answers
        .iter()
        .filter(usable)
        .min_by_key(|answer| (answer.standing, answer.node));
    match best {
        Some(answer) if answer.standing != Standing::Asking => Some(Source::Node(answer.node)),
        _ if !is_complete => None,
        Some(answer) if answer.node < me => Some(Source::Node(answer.node)),
        _ => Some(Source::Store),
    }
}

/// How long a node waits for another one: as long as that one makes progress.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    since: Duration,
    bytes: u64,
}

impl Patience {
    /// Begins at `now`, a time since any fixed point.
    pub fn begin(now: Duration) -> Self {
        Self {
            since: now,
            bytes: 0,
        }
    }

    /// Whether to wait on, when the other node has fetched `bytes` at `now`.
    pub fn lasts(&mut self, now: Duration, bytes: u64) -> bool {
        if bytes >= self.bytes.saturating_add(PROGRESS_BYTES_MIN) {
            *self = Self { since: now, bytes };
        }
        now.saturating_sub(self.since) < PROGRESS_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn node(number: u128) -> NodeId {
        NodeId::new(Uuid::from_u128(number))
    }

    fn answers(given: &[(u128, Standing)]) -> Vec<Answer> {
        let answer = |&(number, standing): &(u128, Standing)| Answer {
            node: node(number),
            standing,
        };
        given.iter().map(answer).collect()
    }

    /// Checks the choice of node 5, during and after the answers.
    fn check(given: &[(u128, Standing)], early: Option<Source>, last: Source) {
        let (me, given, none) = (node(5), answers(given), BTreeSet::new());
        assert_eq!(source(me, &given, &none, false), early, "{given:?}");
        assert_eq!(source(me, &given, &none, true), Some(last), "{given:?}");
    }

    #[test]
    fn node_with_the_artifact_is_chosen_immediately() {
        let source = Source::Node(node(9));
        check(&[(9, Standing::Whole)], Some(source), source);
        let all = [
            (1, Standing::Asking),
            (2, Standing::Fetching),
            (9, Standing::Whole),
        ];
        check(&all, Some(source), source);
    }

    #[test]
    fn node_that_fetches_is_chosen_before_nodes_that_ask() {
        let source = Source::Node(node(9));
        let all = [(1, Standing::Asking), (9, Standing::Fetching)];
        check(&all, Some(source), source);
    }

    #[test]
    fn store_serves_an_artifact_that_no_other_node_knows() {
        check(&[], None, Source::Store);
        check(&[(5, Standing::Whole)], None, Source::Store);
    }

    #[test]
    fn exactly_one_of_concurrent_askers_fetches_from_the_store() {
        let all: Vec<_> = (1..=6).map(|number| (number, Standing::Asking)).collect();
        check(&all, None, Source::Node(node(1)));
        let (all, none) = (answers(&all), BTreeSet::new());
        let fetching = |me: &u128| source(node(*me), &all, &none, true) == Some(Source::Store);
        assert_eq!((1..=6).filter(fetching).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn failed_node_is_replaced() {
        let all = answers(&[
            (1, Standing::Whole),
            (2, Standing::Fetching),
            (3, Standing::Asking),
        ]);
        let mut failed = BTreeSet::new();
        for expected in [1, 2, 3].map(|number| Source::Node(node(number))) {
            assert_eq!(source(node(5), &all, &failed, true), Some(expected));
            let Source::Node(next) = expected else {
                unreachable!("the store is not expected")
            };
            failed.insert(next);
        }
        assert_eq!(source(node(5), &all, &failed, true), Some(Source::Store));
    }

    #[test]
    fn store_serves_after_too_many_failures() {
        let failed: BTreeSet<_> = (10..).map(node).take(ATTEMPTS_MAX).collect();
        let all = answers(&[(1, Standing::Whole)]);
        assert_eq!(source(node(5), &all, &failed, false), Some(Source::Store));
    }

    #[test]
    fn patience_ends_without_enough_progress() {
        let at = Duration::from_secs;
        let mut patience = Patience::begin(at(100));
        assert!(patience.lasts(at(109), 0));
        assert!(
            patience.lasts(at(109), PROGRESS_BYTES_MIN),
            "progress counts"
        );
        assert!(patience.lasts(at(118), PROGRESS_BYTES_MIN + 1));
        assert!(
            !patience.lasts(at(119), PROGRESS_BYTES_MIN + 1),
            "a byte is no progress"
        );
    }
}
