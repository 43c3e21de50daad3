//! The id of a node, which lives as long as its data directory.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use aod_domain::id::NodeId;
use aod_ports::clock::Clock;
use thiserror::Error;

/// Why the node has no id.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// Fixed by the operator.
    #[error("the node cannot use {path}")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    /// Fixed by the operator.
    #[error("{path} contains no valid node id: {text:?}; restore or remove the file")]
    Malformed { path: PathBuf, text: String },
}

/// Reads the node's id from `data`, or creates and stores one.
pub fn load_or_draw(data: &Path, clock: &dyn Clock) -> Result<NodeId, IdentityError> {
    let path = data.join("node-id");
    let failed = |source| IdentityError::Directory {
        path: path.clone(),
        source,
    };
    fs::create_dir_all(data).map_err(failed)?;
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| IdentityError::Malformed {
            path: path.clone(),
            text,
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let id = NodeId::new(clock.fresh_uuid());
            let draft = data.join("node-id.new");
            fs::write(&draft, format!("{id}\n")).map_err(failed)?;
            fs::rename(&draft, &path).map_err(failed)?;
            Ok(id)
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use aod_ports::clock::SystemClock;

    use super::*;

    #[test]
    fn node_id_survives_restart() {
        let data = tempfile::tempdir().unwrap();
        let id = load_or_draw(data.path(), &SystemClock).unwrap();
        assert_eq!(load_or_draw(data.path(), &SystemClock).unwrap(), id);
    }

    #[test]
    fn malformed_node_id_is_shown_in_the_error() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join("node-id"), "rubbish").unwrap();
        let error = load_or_draw(data.path(), &SystemClock).unwrap_err();
        assert!(error.to_string().contains("rubbish"), "{error}");
    }
}
