//! The directories of an attempt on the host, and their removal.
//!
//! ```text
//! <data>/runs/<run>-<attempt>/io                   /io, mode 1777
//!                             io/input.json        /io/input.json, read-only
//!                             io/input             /io/input, read-only
//!                             io/output            /io/output
//!                             io/handoff           /io/handoff, read-only
//!                             io/handoff/outgoing  /io/handoff/outgoing
//!                             io/handoff/incoming  /io/handoff/incoming, read-only
//!                             workspace            /workspace
//!                             volumes              the volumes that the image declares
//! <data>/spare/<number>                            emptied directories for the next attempt
//! <data>/c/<number>                                /.aod/channel: a short path, as it holds sockets
//! <data>/leftovers/<number>                        directories that could not be removed yet
//! ```
//!
//! Each name on the right is a separate mount over the same directory. A capsule cannot move or replace a mount point,
//! and the node creates and removes as few directories for a run as possible.

mod reuse;

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use aod_domain::id::RunId;
use aod_ports::container_runtime::IoPaths;
use tracing::warn;

use self::reuse::{Likeness, Part};
use crate::files::descent::removal::remove_tree;
use crate::files::leftovers::Leftovers;
use crate::lock::lock;

/// Mode of directories that a capsule may write to: the node owns them, and the capsule's user may write.
const MODE_SHARED: u32 = 0o1777;

/// Mode of directories that a capsule only reads.
const MODE_READ: u32 = 0o755;

/// Entries of `io` that the node creates.
pub(crate) const GIVEN: [&str; 3] = ["input.json", "input", "handoff/incoming"];

/// The directories of all attempts of a node. Only the node's user can enter their parents.
#[derive(Debug)]
pub(crate) struct WorkDirectories {
    runs: PathBuf,
    spare: PathBuf,
    channels: PathBuf,
    pub(crate) leftovers: Leftovers,
    next_number: AtomicU64,
    spares: Mutex<Vec<Skeleton>>,
}

/// The run's socket in its channel directory. Source: the gate's protocol.
const SOCKET: &str = "capsule.sock";

/// The input document, below the root.
const INPUT_JSON: &str = "io/input.json";

/// The directories of one attempt.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    root: PathBuf,
    paths: IoPaths,
    skeleton: Skeleton,
}

/// The reusable part of an attempt's directories.
#[derive(Debug)]
struct Skeleton {
    number: u64,
    likenesses: Vec<Likeness>,
    /// Listens at the run's socket.
    listener: UnixListener,
}

/// Maximum number of spare skeletons: the number of concurrent attempts on a busy node.
const SPARES_MAX: usize = 128;

/// The directories of a skeleton, each after its parent.
const PARTS: [Part; 9] = [
    Part(".", &["io", "workspace", "volumes"]),
    Part("io", &["input.json", "input", "output", "handoff"]),
    Part("io/input", &[]),
    Part("io/output", &[]),
    Part("io/handoff", &["outgoing", "incoming"]),
    Part("io/handoff/outgoing", &[]),
    Part("io/handoff/incoming", &[]),
    Part("workspace", &[]),
    Part("volumes", &[]),
];

impl WorkDirectories {
    pub(crate) fn new(data: &Path) -> Self {
        Self {
            runs: data.join("runs"),
            spare: data.join("spare"),
            channels: data.join("c"),
            leftovers: Leftovers::new(data.join("leftovers")),
            next_number: AtomicU64::new(0),
            spares: Mutex::default(),
        }
    }

    /// Sets aside the directories of an earlier process and creates new ones. A start does not wait
    /// for the removal of old directories, nor depend on it. The caller has removed the containers that used them.
    pub(crate) fn clear(&self) -> io::Result<()> {
        for path in [&self.runs, &self.spare, &self.channels] {
            self.leftovers.set_aside(path)?;
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// Blocks, for a moment.
    pub(crate) fn make(&self, run: RunId, attempt: u32) -> io::Result<WorkDirectory> {
        let root = self.runs.join(format!("{}-{attempt}", run.token()));
        let spare = lock(&self.spares).pop();
        let skeleton = if let Some(skeleton) = spare {
            fs::rename(self.spare_of(skeleton.number), &root)?;
            skeleton
        } else {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            let channel = self.channel_of(number);
            make_directory(&channel, MODE_READ)?;
            Skeleton {
                number,
                likenesses: make_skeleton(&root)?,
                listener: listen(&channel.join(SOCKET))?,
            }
        };
        let paths = paths_of(&root, self.channel_of(skeleton.number));
        Ok(WorkDirectory {
            root,
            paths,
            skeleton,
        })
    }

    /// Keeps the directories for another attempt, or removes them. The container must be removed before. Blocks.
    pub(crate) fn take_back(&self, directory: WorkDirectory) -> io::Result<()> {
        let (root, skeleton) = (&directory.root, &directory.skeleton);
        let is_full = lock(&self.spares).len() >= SPARES_MAX;
        let reset = || reuse::reset(root, &PARTS, INPUT_JSON, &skeleton.likenesses);
        if is_full || !matches!(reset(), Ok(true)) {
            return self.discard(directory);
        }
        // Drops pending connections of ended processes.
        while skeleton.listener.accept().is_ok() {}
        fs::rename(root, self.spare_of(skeleton.number))?;
        lock(&self.spares).push(directory.skeleton);
        Ok(())
    }

    /// Removes the directories. Sets aside a directory that it cannot remove, for a later try. Blocks.
    pub(crate) fn discard(&self, directory: WorkDirectory) -> io::Result<()> {
        let WorkDirectory { root, paths, .. } = directory;
        for path in [root, paths.channel] {
            if let Err(error) = remove_tree(&path) {
                warn!(path = %path.display(), %error, "the node cannot remove a directory and sets it aside");
                self.leftovers.set_aside(&path)?;
            }
        }
        Ok(())
    }

    fn spare_of(&self, number: u64) -> PathBuf {
        self.spare.join(number.to_string())
    }

    fn channel_of(&self, number: u64) -> PathBuf {
        self.channels.join(format!("{number:x}"))
    }
}

impl WorkDirectory {
    pub(crate) fn paths(&self) -> &IoPaths {
        &self.paths
    }

    /// The listener of the run's channel.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.skeleton.listener.try_clone()
    }

    /// The path of a private file of the node for this attempt.
    pub(crate) fn private(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

fn paths_of(root: &Path, channel: PathBuf) -> IoPaths {
    let (io, handoff) = (root.join("io"), root.join("io/handoff"));
    IoPaths {
        input_json: root.join(INPUT_JSON),
        inputs: io.join("input"),
        outputs: io.join("output"),
        outgoing: handoff.join("outgoing"),
        incoming: handoff.join("incoming"),
        workspace: root.join("workspace"),
        volumes: root.join("volumes"),
        io,
        handoff,
        channel,
    }
}

fn make_skeleton(root: &Path) -> io::Result<Vec<Likeness>> {
    make_directory(root, MODE_READ)?;
    for part in &PARTS[1..] {
        let mode = match part.0 {
            "io" | "io/output" | "io/handoff/outgoing" | "workspace" => MODE_SHARED,
            _ => MODE_READ,
        };
        make_directory(&root.join(part.0), mode)?;
    }
    let input_json = root.join(INPUT_JSON);
    fs::write(&input_json, "")?;
    fs::set_permissions(&input_json, Permissions::from_mode(0o644))?;
    reuse::likenesses(root, &PARTS, INPUT_JSON)
}

/// On the host, only the node's user can enter the directory; in the container, the capsule's user must connect.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    // The umask removes bits from the builder's mode.
    fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use uuid::Uuid;

    use super::*;
    use crate::files::descent::tests::nest;

    fn open(data: &Path) -> WorkDirectories {
        let directories = WorkDirectories::new(data);
        directories.clear().unwrap();
        directories
    }

    fn make(directories: &WorkDirectories, run: u128) -> WorkDirectory {
        let run = RunId::root_of(Uuid::from_u128(run));
        directories.make(run, 1).unwrap()
    }

    #[test]
    fn discarded_attempt_leaves_no_directories() {
        let data = tempfile::tempdir().unwrap();
        let directories = open(data.path());
        let directory = make(&directories, 1);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&directory.paths().io), 0o1777);
        assert_eq!(mode(&directory.paths().inputs), 0o755);
        assert_eq!(mode(&data.path().join("runs")), 0o700);
        directories.discard(directory).unwrap();
        for name in ["runs", "spare", "c"] {
            assert_eq!(count(&data.path().join(name)), 0, "{name}");
        }
    }

    fn count(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    /// Creates directories, runs `act` in them, and takes them back. Whether they are kept.
    fn is_kept_after(act: impl FnOnce(&IoPaths)) -> bool {
        let data = tempfile::tempdir().unwrap();
        let directories = open(data.path());
        let first = make(&directories, 1);
        act(first.paths());
        fs::write(first.private("log"), "a line").unwrap();
        directories.take_back(first).unwrap();
        assert_eq!(count(&data.path().join("runs")), 0);
        let is_kept = count(&data.path().join("spare")) == 1;
        let second = make(&directories, 2);
        for part in &PARTS {
            let found = count(&second.root.join(part.0));
            assert_eq!(found, part.1.len(), "{}", part.0);
        }
        assert_eq!(count(&second.paths().channel), 1);
        assert!(second.listener().unwrap().accept().is_err());
        is_kept
    }

    #[test]
    fn files_of_an_attempt_are_removed_before_reuse() {
        assert!(is_kept_after(|_| ()));
        assert!(is_kept_after(|paths| {
            for directory in [&paths.io, &paths.outputs, &paths.inputs, &paths.workspace] {
                fs::write(directory.join("file"), "secret").unwrap();
            }
            std::os::unix::fs::symlink("/etc", paths.outgoing.join("link")).unwrap();
            UnixStream::connect(paths.channel.join(SOCKET)).unwrap();
        }));
    }

    #[test]
    fn changed_directories_are_not_reused() {
        let in_workspace = |path: &IoPaths| path.workspace.join("sub");
        assert!(!is_kept_after(
            |paths| fs::create_dir(in_workspace(paths)).unwrap()
        ));
        assert!(!is_kept_after(|paths| {
            fs::set_permissions(&paths.outputs, Permissions::from_mode(0o777)).unwrap();
        }));
        assert!(!is_kept_after(|paths| {
            fs::remove_dir(&paths.incoming).unwrap();
            std::os::unix::fs::symlink("/etc", &paths.incoming).unwrap();
        }));
        assert!(!is_kept_after(|paths| {
            for number in 0..1_000 {
                fs::write(paths.workspace.join(format!("{number}")), "").unwrap();
            }
        }));
        assert!(!is_kept_after(|paths| {
            rustix::fs::setxattr(
                &paths.workspace,
                "user.note",
                b"from the run before",
                rustix::fs::XattrFlags::empty(),
            )
            .unwrap();
        }));
    }

    #[test]
    fn start_sets_aside_directories_of_an_earlier_process() {
        let data = tempfile::tempdir().unwrap();
        make(&open(data.path()), 1);
        let directories = open(data.path());
        assert_eq!(count(&data.path().join("runs")), 0);
        assert_eq!(directories.leftovers.remove(), 0);
        assert_eq!(count(&data.path().join("leftovers")), 0);
    }

    #[test]
    fn workspace_of_20_000_levels_is_removed_and_does_not_block_a_start() {
        let data = tempfile::tempdir().unwrap();
        let make = |directories: &WorkDirectories| {
            let directory = make(directories, 1);
            nest(&directory.paths().workspace, 20_000, false);
            directory
        };
        let directories = open(data.path());
        let directory = make(&directories);
        directories.take_back(directory).unwrap();
        assert_eq!(count(&data.path().join("runs")), 0);
        make(&directories);
        let directories = open(data.path());
        assert_eq!(count(&data.path().join("runs")), 0);
        assert_eq!(directories.leftovers.remove(), 0);
    }
}
