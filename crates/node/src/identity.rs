//! The id of a node: it belongs to one data directory, and a copy of the directory gets another id.
//!
//! The node names and labels its containers with its id, so two directories with the same id would remove each other's
//! containers. The file `node-id` therefore also contains the place of its directory: the path and the inode. A copy
//! has another inode, or another path (a snapshot of a file system keeps the inodes). The number of the device is not
//! part of the place, because a restart of the host may change it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aod_domain::id::NodeId;
use aod_ports::clock::Clock;
use thiserror::Error;
use tracing::warn;

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

/// The relation of a data directory to the node id in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The directory contains no node id.
    Unused,
    /// The node has started with this directory before.
    Own { id: NodeId },
    /// The files were copied or moved from the directory `from`: the id in them belongs to another node.
    Copied { from: PathBuf, id: NodeId },
}

/// The place of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    inode: u64,
    path: String,
}

impl Place {
    fn of(directory: &Path) -> std::io::Result<Self> {
        let path = fs::canonicalize(directory)?;
        Ok(Self {
            inode: fs::metadata(&path)?.ino(),
            path: path.to_string_lossy().into_owned(),
        })
    }
}

/// The content of the file: the id, the inode and the path, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    id: NodeId,
    place: Place,
}

impl Stored {
    fn parse(text: &str) -> Option<Self> {
        // The path is last: it may contain line feeds.
        let mut parts = text.splitn(3, '\n');
        Some(Self {
            id: parts.next()?.parse().ok()?,
            place: Place {
                inode: parts.next()?.strip_prefix("inode ")?.parse().ok()?,
                path: parts
                    .next()?
                    .strip_prefix("path ")?
                    .strip_suffix('\n')?
                    .to_owned(),
            },
        })
    }

    fn text(&self) -> String {
        let Place { inode, path } = &self.place;
        format!("{}\ninode {inode}\npath {path}\n", self.id)
    }

    /// The origin of a directory at `place` that contains this.
    fn origin(self, place: &Place) -> Origin {
        if self.place == *place {
            return Origin::Own { id: self.id };
        }
        Origin::Copied {
            from: self.place.path.into(),
            id: self.id,
        }
    }
}

/// The origin of the node's directory `data`, without a change to it.
pub fn origin(data: &Path) -> Result<Origin, IdentityError> {
    let path = file(data);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Origin::Unused),
        Err(source) => return Err(IdentityError::Directory { path, source }),
    };
    let place = Place::of(data).map_err(|source| unusable(data, source))?;
    match Stored::parse(&text) {
        Some(stored) => Ok(stored.origin(&place)),
        None => Err(IdentityError::Malformed { path, text }),
    }
}

/// Reads the node's id from `data`; creates and stores one if there is none, or if it belongs to another directory.
pub fn load_or_draw(data: &Path, clock: &dyn Clock) -> Result<NodeId, IdentityError> {
    let failed = |source| unusable(data, source);
    fs::create_dir_all(data).map_err(failed)?;
    let id = NodeId::new(clock.fresh_uuid());
    match origin(data)? {
        Origin::Own { id } => return Ok(id),
        Origin::Unused => (),
        Origin::Copied {
            from,
            id: of_original,
        } => warn!(
            node = %id,
            %of_original,
            directory = %data.display(),
            from = %from.display(),
            "the data directory was copied or moved, so the node takes a new id; \
             it does not touch the containers of the original node"
        ),
    }
    let place = Place::of(data).map_err(failed)?;
    let draft = data.join("node-id.new");
    fs::write(&draft, Stored { id, place }.text()).map_err(failed)?;
    fs::rename(&draft, file(data)).map_err(failed)?;
    Ok(id)
}

fn file(data: &Path) -> PathBuf {
    data.join("node-id")
}

fn unusable(data: &Path, source: std::io::Error) -> IdentityError {
    IdentityError::Directory {
        path: data.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use aod_ports::clock::SystemClock;
    use uuid::Uuid;

    use super::*;

    fn stored(inode: u64, path: &str) -> Stored {
        Stored {
            id: NodeId::new(Uuid::from_u128(7)),
            place: Place {
                inode,
                path: path.to_owned(),
            },
        }
    }

    /// Copies the node's id from one directory to another, as a backup does.
    fn copy_id(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        fs::copy(file(from), file(to)).unwrap();
    }

    #[test]
    fn node_id_survives_restart() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(origin(data.path()).unwrap(), Origin::Unused);
        let id = load_or_draw(data.path(), &SystemClock).unwrap();
        assert_eq!(load_or_draw(data.path(), &SystemClock).unwrap(), id);
        assert_eq!(origin(data.path()).unwrap(), Origin::Own { id });
    }

    #[test]
    fn node_id_survives_restart_through_a_symbolic_link() {
        let directory = tempfile::tempdir().unwrap();
        let (data, link) = (directory.path().join("data"), directory.path().join("link"));
        let id = load_or_draw(&data, &SystemClock).unwrap();
        std::os::unix::fs::symlink(&data, &link).unwrap();
        assert_eq!(load_or_draw(&link, &SystemClock).unwrap(), id);
    }

    #[test]
    fn copied_directory_gets_a_new_node_id_and_the_original_keeps_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let (data, copy) = (directory.path().join("data"), directory.path().join("copy"));
        let id = load_or_draw(&data, &SystemClock).unwrap();
        copy_id(&data, &copy);
        let from = data.canonicalize().unwrap();
        assert_eq!(origin(&copy).unwrap(), Origin::Copied { from, id });
        let of_copy = load_or_draw(&copy, &SystemClock).unwrap();
        assert_ne!(of_copy, id);
        assert_eq!(load_or_draw(&copy, &SystemClock).unwrap(), of_copy);
        assert_eq!(load_or_draw(&data, &SystemClock).unwrap(), id);
    }

    #[test]
    fn directory_restored_to_the_path_of_the_original_is_a_copy() {
        let directory = tempfile::tempdir().unwrap();
        let (data, kept) = (directory.path().join("data"), directory.path().join("kept"));
        let id = load_or_draw(&data, &SystemClock).unwrap();
        fs::rename(&data, &kept).unwrap();
        copy_id(&kept, &data);
        let from = data.canonicalize().unwrap();
        assert_eq!(origin(&data).unwrap(), Origin::Copied { from, id });
    }

    #[test]
    fn only_the_same_inode_at_the_same_path_is_the_same_directory() {
        let here = stored(5, "/data");
        let id = here.id;
        assert_eq!(here.clone().origin(&here.place), Origin::Own { id });
        for other in [stored(6, "/data"), stored(5, "/copy"), stored(6, "/copy")] {
            let from = PathBuf::from("/data");
            assert_eq!(
                here.clone().origin(&other.place),
                Origin::Copied { from, id }
            );
        }
    }

    #[test]
    fn stored_place_is_read_as_written() {
        for path in ["/data", "/with space", "/with\nline\n", ""] {
            let stored = stored(u64::MAX, path);
            assert_eq!(Stored::parse(&stored.text()), Some(stored));
        }
    }

    #[test]
    fn malformed_node_id_is_shown_in_the_error() {
        let data = tempfile::tempdir().unwrap();
        let id = NodeId::new(Uuid::from_u128(7));
        for text in ["rubbish".to_owned(), format!("{id}\n")] {
            fs::write(file(data.path()), &text).unwrap();
            let error = load_or_draw(data.path(), &SystemClock).unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
