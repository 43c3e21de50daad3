//! Names and labels of containers, and their recognition.

use std::collections::HashMap;

use aod_domain::digest::Digest;
use aod_domain::id::{NodeId, RunId};
use aod_domain::node::ObservedContainer;

/// The cluster of a container or an image.
pub(crate) const LABEL_CLUSTER: &str = "dev.aod.cluster";
/// The node that started the container.
pub(crate) const LABEL_NODE: &str = "dev.aod.node";
/// The run, as `run_…`.
pub(crate) const LABEL_RUN: &str = "dev.aod.run";
/// The number of the run's attempt.
pub(crate) const LABEL_ATTEMPT: &str = "dev.aod.attempt";
/// The capsule's name.
pub(crate) const LABEL_CAPSULE: &str = "dev.aod.capsule";
/// One launch of the container: distinguishes it from a container of an earlier launch.
pub(crate) const LABEL_LAUNCH: &str = "dev.aod.launch";
/// On images: the capsule's name.
pub(crate) const LABEL_NAME: &str = aod_registry::labels::NAME;
/// On images: the capsule's version, the part of the tag after the colon.
pub(crate) const LABEL_VERSION: &str = "dev.aod.version";

/// The owner of a container: a node touches only its own containers. Another node on the same engine may have a log
/// with the same runs and attempts, for example the node of a restored backup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) node: NodeId,
}

impl Owner<'_> {
    /// The labels of the owner's containers, as the engine filters by them.
    pub(crate) fn filters(self) -> Vec<String> {
        vec![
            format!("{LABEL_CLUSTER}={}", self.cluster),
            format!("{LABEL_NODE}={}", self.node),
        ]
    }

    /// Whether a container with these labels is the owner's.
    pub(crate) fn owns(self, labels: &HashMap<String, String>) -> bool {
        let is = |name: &str, value: &str| labels.get(name).is_some_and(|label| label == value);
        is(LABEL_CLUSTER, self.cluster) && is(LABEL_NODE, &self.node.to_string())
    }
}

/// The prefix of the names of all containers of an owner: 32 bits of a hash are enough to distinguish the
/// nodes of one engine; the labels decide.
pub(crate) fn prefix(owner: Owner<'_>) -> String {
    let text = format!("{}\n{}", owner.cluster, owner.node);
    let [first, second, third, fourth, ..] = *Digest::of(&text).as_bytes();
    let digits = u32::from_be_bytes([first, second, third, fourth]);
    format!("aod-{digits:08x}-")
}

/// The name of the container in which a node looks at images.
pub(crate) fn look_name(owner: Owner<'_>) -> String {
    format!("{}look", prefix(owner))
}

/// The name of an attempt's container on a node: the same for every launch.
pub(crate) fn container_name(owner: Owner<'_>, run: RunId, attempt: u32) -> String {
    format!("{}{}-{attempt}", prefix(owner), run.token().to_lowercase())
}

/// Parses a container's name and labels; none if `owner` did not make the container: labels alone may come
/// from an image.
pub(crate) fn observed(
    owner: Owner<'_>,
    name: &str,
    labels: &HashMap<String, String>,
    is_running: bool,
) -> Option<ObservedContainer> {
    let run: RunId = labels.get(LABEL_RUN)?.parse().ok()?;
    let attempt: u32 = labels.get(LABEL_ATTEMPT)?.parse().ok()?;
    let is_ours = owner.owns(labels) && name == container_name(owner, run, attempt);
    is_ours.then(|| ObservedContainer {
        name: name.to_owned(),
        run,
        attempt,
        is_running,
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn owner(cluster: &str, node: u128) -> Owner<'_> {
        Owner {
            cluster,
            node: NodeId::new(Uuid::from_u128(node)),
        }
    }

    fn run() -> RunId {
        RunId::root_of(Uuid::from_u128(5)).child(&Digest::of("call"))
    }

    fn labels(owner: Owner<'_>) -> HashMap<String, String> {
        HashMap::from(
            [
                (LABEL_CLUSTER, owner.cluster),
                (LABEL_NODE, &owner.node.to_string()),
                (LABEL_RUN, &run().to_string()),
                (LABEL_ATTEMPT, "3"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        )
    }

    #[test]
    fn container_name_fits_docker_and_parses_only_for_its_owner() {
        let demo = owner("demo", 1);
        let name = container_name(demo, run(), 3);
        // Source: moby `daemon/names`, [a-zA-Z0-9][a-zA-Z0-9_.-]+.
        assert!(
            name.chars()
                .all(|char| char.is_ascii_alphanumeric() || char == '-'),
            "{name}"
        );
        let labels = labels(demo);
        let expected = ObservedContainer {
            name: name.clone(),
            run: run(),
            attempt: 3,
            is_running: true,
        };
        assert_eq!(observed(demo, &name, &labels, true), Some(expected));
        assert_eq!(observed(demo, "someone-elses", &labels, true), None);
        for other in [owner("other", 1), owner("demo", 2)] {
            assert_eq!(observed(other, &name, &labels, true), None);
            assert!(!other.owns(&labels));
        }
    }

    #[test]
    fn same_attempt_on_two_nodes_has_two_container_names() {
        let names = [owner("demo", 1), owner("demo", 2), owner("other", 1)]
            .map(|owner| container_name(owner, run(), 3));
        assert_ne!(names[0], names[1]);
        assert_ne!(names[0], names[2]);
    }
}
