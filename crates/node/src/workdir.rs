//! The directories of an attempt on the host, and their removal.
//!
//! ```text
//! <data>/runs/<run>-<attempt>/io           /io, mode 1777, with the mount points below it
//!                             input.json   /io/input.json
//!                             inputs       /io/input
//!                             outputs      /io/output
//!                             handoffs/out /io/handoff/outgoing
//!                             handoffs/in  /io/handoff/incoming
//!                             workspace    /workspace
//! <data>/c/<number>                        /.aod/channel: short, as it holds sockets
//! ```

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use aod_domain::id::RunId;
use aod_ports::container_runtime::IoPaths;

/// Directories that a capsule may write to belong to us and are open to its user.
const MODE_SHARED: u32 = 0o1777;

/// Directories that a capsule only reads.
const MODE_READ: u32 = 0o755;

/// The directories of all attempts of a node. Nobody but the node's user can enter the parents.
#[derive(Debug)]
pub(crate) struct WorkDirectories {
    runs: PathBuf,
    channels: PathBuf,
    next_channel: AtomicU64,
}

/// The directories of one attempt; removed by [`WorkDirectory::remove`], or at the next start.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    root: PathBuf,
    paths: IoPaths,
}

impl WorkDirectories {
    pub(crate) fn new(data: &Path) -> Self {
        Self {
            runs: data.join("runs"),
            channels: data.join("c"),
            next_channel: AtomicU64::new(0),
        }
    }

    /// Removes what an earlier process left, and makes the directories. The containers that used
    /// them must be gone.
    pub(crate) fn clear(&self) -> io::Result<()> {
        for path in [&self.runs, &self.channels] {
            remove_tree(path)?;
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    pub(crate) fn make(&self, run: RunId, attempt: u32) -> io::Result<WorkDirectory> {
        let root = self.runs.join(format!("{}-{attempt}", run.token()));
        let channel = self.channels.join(format!(
            "{:x}",
            self.next_channel.fetch_add(1, Ordering::Relaxed)
        ));
        let paths = IoPaths {
            io: root.join("io"),
            input_json: root.join("input.json"),
            inputs: root.join("inputs"),
            outputs: root.join("outputs"),
            outgoing: root.join("handoffs/out"),
            incoming: root.join("handoffs/in"),
            workspace: root.join("workspace"),
            channel,
        };
        make_directory(&root, MODE_READ)?;
        make_directory(&root.join("handoffs"), MODE_READ)?;
        make_directory(&paths.io, MODE_SHARED)?;
        make_directory(&paths.io.join("handoff"), MODE_READ)?;
        for mount_point in ["input", "output", "handoff/outgoing", "handoff/incoming"] {
            make_directory(&paths.io.join(mount_point), MODE_READ)?;
        }
        fs::write(paths.io.join("input.json"), "")?;
        for path in [&paths.outputs, &paths.outgoing, &paths.workspace] {
            make_directory(path, MODE_SHARED)?;
        }
        for path in [&paths.inputs, &paths.incoming, &paths.channel] {
            make_directory(path, MODE_READ)?;
        }
        Ok(WorkDirectory { root, paths })
    }
}

impl WorkDirectory {
    pub(crate) fn paths(&self) -> &IoPaths {
        &self.paths
    }

    /// A private place for the node's own files of this attempt.
    pub(crate) fn private(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Removes everything; blocks.
    pub(crate) fn remove(self) -> io::Result<()> {
        remove_tree(&self.root)?;
        remove_tree(&self.paths.channel)
    }
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    // The umask takes bits from what the builder was given.
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn open(data: &Path) -> WorkDirectories {
        let directories = WorkDirectories::new(data);
        directories.clear().unwrap();
        directories
    }

    #[test]
    fn an_attempt_leaves_nothing() {
        let data = tempfile::tempdir().unwrap();
        let directories = open(data.path());
        let directory = directories
            .make(RunId::root_of(Uuid::from_u128(1)), 1)
            .unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&directory.paths().io), 0o1777);
        assert_eq!(mode(&directory.paths().inputs), 0o755);
        assert_eq!(mode(&data.path().join("runs")), 0o700);
        directory.remove().unwrap();
        for name in ["runs", "c"] {
            assert_eq!(
                fs::read_dir(data.path().join(name)).unwrap().count(),
                0,
                "{name}"
            );
        }
    }

    #[test]
    fn a_start_clears_what_an_earlier_process_left() {
        let data = tempfile::tempdir().unwrap();
        open(data.path())
            .make(RunId::root_of(Uuid::from_u128(1)), 1)
            .unwrap();
        open(data.path());
        assert_eq!(fs::read_dir(data.path().join("runs")).unwrap().count(), 0);
    }
}
