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
//! <data>/spare/<number>                            an attempt's, emptied, for the next one
//! <data>/c/<number>                                /.aod/channel: short, as it holds sockets
//! ```
//!
//! Every name on the right is a mount of its own over the same directory: a mount point cannot be
//! moved or replaced from inside, and as few directories as can be are made and removed for a run.

mod reuse;

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use aod_domain::id::RunId;
use aod_ports::container_runtime::IoPaths;

use self::reuse::{Likeness, Part};

/// Directories that a capsule may write to belong to us and are open to its user.
const MODE_SHARED: u32 = 0o1777;

/// Directories that a capsule only reads.
const MODE_READ: u32 = 0o755;

/// What stands in `io` without the capsule's doing.
pub(crate) const GIVEN: [&str; 3] = ["input.json", "input", "handoff/incoming"];

/// The directories of all attempts of a node. Nobody but the node's user can enter the parents.
#[derive(Debug)]
pub(crate) struct WorkDirectories {
    runs: PathBuf,
    spare: PathBuf,
    channels: PathBuf,
    next_number: AtomicU64,
    spares: Mutex<Vec<Skeleton>>,
}

/// The run's socket in its channel directory. Source: the gate's protocol.
const SOCKET: &str = "capsule.sock";

/// The document of the input, below the root.
const INPUT_JSON: &str = "io/input.json";

/// The directories of one attempt; given up with [`WorkDirectories::take_back`], or at the next start.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    root: PathBuf,
    paths: IoPaths,
    skeleton: Skeleton,
}

/// What is made once and may serve one attempt after the other.
#[derive(Debug)]
struct Skeleton {
    number: u64,
    likenesses: Vec<Likeness>,
    /// Listens at the run's socket.
    listener: UnixListener,
}

/// Skeletons kept: as many as a busy node has attempts at one time.
const SPARES_MAX: usize = 128;

/// The directories of a skeleton, each after the one that it is in.
const PARTS: [Part; 8] = [
    Part {
        name: ".",
        children: &["io", "workspace"],
    },
    Part {
        name: "io",
        children: &["input.json", "input", "output", "handoff"],
    },
    Part {
        name: "io/input",
        children: &[],
    },
    Part {
        name: "io/output",
        children: &[],
    },
    Part {
        name: "io/handoff",
        children: &["outgoing", "incoming"],
    },
    Part {
        name: "io/handoff/outgoing",
        children: &[],
    },
    Part {
        name: "io/handoff/incoming",
        children: &[],
    },
    Part {
        name: "workspace",
        children: &[],
    },
];

impl WorkDirectories {
    pub(crate) fn new(data: &Path) -> Self {
        Self {
            runs: data.join("runs"),
            spare: data.join("spare"),
            channels: data.join("c"),
            next_number: AtomicU64::new(0),
            spares: Mutex::default(),
        }
    }

    /// Removes what an earlier process left, and makes the directories. The containers that used
    /// them must be gone.
    pub(crate) fn clear(&self) -> io::Result<()> {
        for path in [&self.runs, &self.spare, &self.channels] {
            remove_tree(path)?;
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// Blocks, for a moment.
    pub(crate) fn make(&self, run: RunId, attempt: u32) -> io::Result<WorkDirectory> {
        let root = self.runs.join(format!("{}-{attempt}", run.token()));
        let spare = self.spares().pop();
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

    /// Keeps the directories for another attempt, or removes them. Nobody else may use them any more:
    /// the container must be gone. Blocks.
    pub(crate) fn take_back(&self, directory: WorkDirectory) -> io::Result<()> {
        let (root, skeleton) = (&directory.root, &directory.skeleton);
        let is_full = self.spares().len() >= SPARES_MAX;
        let reset = || reuse::reset(root, &PARTS, INPUT_JSON, &skeleton.likenesses);
        if is_full || !matches!(reset(), Ok(true)) {
            return directory.remove();
        }
        // Whoever still waits to be heard is dead.
        while skeleton.listener.accept().is_ok() {}
        fs::rename(root, self.spare_of(skeleton.number))?;
        self.spares().push(directory.skeleton);
        Ok(())
    }

    fn spares(&self) -> std::sync::MutexGuard<'_, Vec<Skeleton>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Listens to the run's capsule.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.skeleton.listener.try_clone()
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

fn paths_of(root: &Path, channel: PathBuf) -> IoPaths {
    let (io, handoff) = (root.join("io"), root.join("io/handoff"));
    IoPaths {
        input_json: root.join(INPUT_JSON),
        inputs: io.join("input"),
        outputs: io.join("output"),
        outgoing: handoff.join("outgoing"),
        incoming: handoff.join("incoming"),
        workspace: root.join("workspace"),
        io,
        handoff,
        channel,
    }
}

fn make_skeleton(root: &Path) -> io::Result<Vec<Likeness>> {
    make_directory(root, MODE_READ)?;
    for part in &PARTS[1..] {
        let mode = match part.name {
            "io" | "io/output" | "io/handoff/outgoing" | "workspace" => MODE_SHARED,
            _ => MODE_READ,
        };
        make_directory(&root.join(part.name), mode)?;
    }
    let input_json = root.join(INPUT_JSON);
    fs::write(&input_json, "")?;
    fs::set_permissions(&input_json, Permissions::from_mode(0o644))?;
    reuse::likenesses(root, &PARTS, INPUT_JSON)
}

/// The directory is the node's alone; in the container the capsule's user must connect.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
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
    use std::os::unix::net::UnixStream;

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
        for name in ["runs", "spare", "c"] {
            assert_eq!(count(&data.path().join(name)), 0, "{name}");
        }
    }

    fn count(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    /// Makes the directories, does `what` in them, and takes them back. Whether they are kept.
    fn is_kept_after(what: impl FnOnce(&IoPaths)) -> bool {
        let data = tempfile::tempdir().unwrap();
        let directories = open(data.path());
        let first = directories
            .make(RunId::root_of(Uuid::from_u128(1)), 1)
            .unwrap();
        what(first.paths());
        fs::write(first.private("log"), "a line").unwrap();
        directories.take_back(first).unwrap();
        assert_eq!(count(&data.path().join("runs")), 0);
        let is_kept = count(&data.path().join("spare")) == 1;
        let second = directories
            .make(RunId::root_of(Uuid::from_u128(2)), 1)
            .unwrap();
        for part in &PARTS {
            let found = count(&second.root.join(part.name));
            assert_eq!(found, part.children.len(), "{}", part.name);
        }
        assert_eq!(count(&second.paths().channel), 1);
        assert!(second.listener().unwrap().accept().is_err());
        is_kept
    }

    #[test]
    fn what_an_attempt_wrote_is_gone_before_the_next() {
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
    fn directories_that_differ_are_not_used_again() {
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
    fn a_start_clears_what_an_earlier_process_left() {
        let data = tempfile::tempdir().unwrap();
        open(data.path())
            .make(RunId::root_of(Uuid::from_u128(1)), 1)
            .unwrap();
        open(data.path());
        assert_eq!(fs::read_dir(data.path().join("runs")).unwrap().count(), 0);
    }
}
