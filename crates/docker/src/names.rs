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
pub(crate) const LABEL_NAME: &str = "dev.aod.name";
/// On images: the capsule's version, the part of the tag after the colon.
pub(crate) const LABEL_VERSION: &str = "dev.aod.version";

/// The prefix of all names of a cluster's containers: 32 bits of its hash are enough to distinguish the
/// clusters of one engine; the label decides.
pub(crate) fn prefix(cluster: &str) -> String {
    let [first, second, third, fourth, ..] = *Digest::of(cluster).as_bytes();
    let digits = u32::from_be_bytes([first, second, third, fourth]);
    format!("aod-{digits:08x}-")
}

/// The name of the container in which a node looks at images.
pub(crate) fn look_name(cluster: &str, node: NodeId) -> String {
    let node = node.to_string().to_lowercase();
    format!("{}look-{node}", prefix(cluster))
}

/// The name of an attempt's container: the same for every launch.
pub(crate) fn container_name(cluster: &str, run: RunId, attempt: u32) -> String {
    format!(
        "{}{}-{attempt}",
        prefix(cluster),
        run.token().to_lowercase()
    )
}

/// Parses a container's name and labels; none if AOD did not make the container: labels alone may come
/// from an image.
pub(crate) fn observed(
    cluster: &str,
    name: &str,
    labels: &HashMap<String, String>,
    is_running: bool,
) -> Option<ObservedContainer> {
    let run: RunId = labels.get(LABEL_RUN)?.parse().ok()?;
    let attempt: u32 = labels.get(LABEL_ATTEMPT)?.parse().ok()?;
    let is_ours = labels
        .get(LABEL_CLUSTER)
        .is_some_and(|label| label == cluster)
        && name == container_name(cluster, run, attempt);
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

    #[test]
    fn container_name_fits_docker_and_parses_only_for_its_cluster() {
        let run = RunId::root_of(Uuid::from_u128(5)).child(&Digest::of("call"));
        let name = container_name("demo", run, 3);
        // Source: moby `daemon/names`, [a-zA-Z0-9][a-zA-Z0-9_.-]+.
        assert!(
            name.chars()
                .all(|char| char.is_ascii_alphanumeric() || char == '-'),
            "{name}"
        );
        let labels = HashMap::from(
            [
                (LABEL_CLUSTER, "demo"),
                (LABEL_RUN, &run.to_string()),
                (LABEL_ATTEMPT, "3"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let expected = ObservedContainer {
            name: name.clone(),
            run,
            attempt: 3,
            is_running: true,
        };
        assert_eq!(observed("demo", &name, &labels, true), Some(expected));
        assert_eq!(observed("other", &name, &labels, true), None);
        assert_eq!(observed("demo", "someone-elses", &labels, true), None);
    }
}
