//! A copied data directory: `aod up` starts it only if the operator confirms that the directory is restored.
//!
//! A copy has the same history as its original. Beside a running original it would repeat the work of all runs that
//! had not ended.

use std::path::Path;

use aod_node::{IdentityError, Origin};

use crate::arguments::UpArguments;
use crate::failure::Failure;

/// The directory of the node in the data directory of `aod up`.
pub(super) const NODE: &str = "node";

/// Rejects a copy, except with `--restored`; returns a notice about an accepted one. Changes nothing.
pub(crate) fn check(arguments: &UpArguments, data: &Path) -> Result<Option<String>, Failure> {
    let origin = aod_node::origin(&data.join(NODE)).map_err(|error| unusable_id(&error))?;
    let has_history = data.join("cluster").exists() || data.join("nats/js").exists();
    let Some(copied) = copied(&origin, has_history) else {
        return Ok(None);
    };
    let data = data.display();
    if arguments.restored {
        return Ok(Some(format!(
            "restored: {data} {copied}; its node gets a new id, and continues all runs that have not ended"
        )));
    }
    Err(Failure::usage(format!("{data} {copied}")).with_details(vec![
        "A copy repeats the work of all runs that have not ended. If the original still exists, two clusters do this work."
            .to_owned(),
    ])
    .with_hint(
        "if the original is gone, add --restored: this cluster then continues its work; to test a backup, add \
         `--restored --pool drill`: this cluster then starts no existing run (docs/guide/restore.md)",
    ))
}

/// Why a data directory counts as a copy; none if it is an original.
fn copied(origin: &Origin, has_history: bool) -> Option<String> {
    match origin {
        Origin::Own { .. } => None,
        Origin::Unused => has_history.then(|| "was copied without its node id".to_owned()),
        Origin::Copied { from, .. } => {
            // The node's directory is below the data directory.
            let from = from.parent().unwrap_or(from);
            Some(format!("was copied or moved from {}", from.display()))
        }
    }
}

pub(crate) fn unusable_id(error: &IdentityError) -> Failure {
    Failure::environment("the node cannot read or create its id").because(error)
}

#[cfg(test)]
mod tests {
    use aod_domain::id::NodeId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_history_without_its_own_node_id_is_a_copy() {
        let id = NodeId::new(Uuid::from_u128(7));
        let from = "/data/node".into();
        assert_eq!(copied(&Origin::Own { id }, true), None);
        assert_eq!(copied(&Origin::Unused, false), None);
        let expected = "was copied without its node id";
        assert_eq!(copied(&Origin::Unused, true).as_deref(), Some(expected));
        let expected = "was copied or moved from /data";
        let copy = Origin::Copied { from, id };
        assert_eq!(copied(&copy, true).as_deref(), Some(expected));
    }
}
