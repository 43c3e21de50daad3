//! Who a node is: an id for as long as its data directory lives.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use aod_domain::id::NodeId;
use aod_ports::clock::Clock;
use thiserror::Error;

/// The data directory cannot be used.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The operator mends the directory.
    #[error("{path} cannot be used")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The operator restores or removes the file.
    #[error("{path} holds no node id: {text:?}")]
    Malformed { path: PathBuf, text: String },
}

/// Reads the node's id from `data`, or draws one and stores it there.
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
    fn the_id_stays() {
        let data = tempfile::tempdir().unwrap();
        let id = load_or_draw(data.path(), &SystemClock).unwrap();
        assert_eq!(load_or_draw(data.path(), &SystemClock).unwrap(), id);
    }

    #[test]
    fn rubbish_is_named() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join("node-id"), "rubbish").unwrap();
        let error = load_or_draw(data.path(), &SystemClock).unwrap_err();
        assert!(error.to_string().contains("rubbish"), "{error}");
    }
}
