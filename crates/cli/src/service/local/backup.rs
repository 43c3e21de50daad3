//! A copy of the data directory of `aod up`, also while it runs.
//!
//! The files of the log must be of one moment. A first pass copies them while the broker works; then the broker is
//! paused, and a second pass copies what has changed. The result is what a killed broker leaves, which loses no
//! confirmed event. Artifacts never change, so they are copied last: the log in the backup names no later ones.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Holder, Lock, restored};
use crate::failure::Failure;
use crate::service::data;
use crate::service::nats;
use crate::service::signals::Signals;

/// The broker's directory: its streams, its users and its port.
const BROKER: &str = "nats";

/// Files of the broker's process, which mean nothing in a copy.
const OF_PROCESS: [&str; 2] = ["nats-server.pid", "nats-server.log"];

/// The directory of the files of runs.
const ARTIFACTS: &str = "artifacts";

/// Files that changed at most this time before the first pass are copied again: times in file systems are not exact.
const TIME_GRANULARITY: Duration = Duration::from_secs(3);

/// Copies the data directory `data` to `target`, which must not exist. Returns whether `aod up` runs with it.
pub(crate) async fn back_up(data: &Path, target: &Path) -> Result<bool, Failure> {
    if !data.join(BROKER).join("js").is_dir() {
        return Err(
            Failure::usage(format!("{} contains no log", data.display())).with_hint(
                "pass the data directory of an `aod up` with --data; with --nats, back up the broker instead",
            ),
        );
    }
    // A signal must not end this process while the broker is paused.
    let _signals = Signals::listen()?;
    create(target)?;
    let copied = copy_all(data, target).await;
    if copied.is_err() {
        let _ = fs::remove_dir_all(target);
    }
    copied
}

async fn copy_all(data: &Path, target: &Path) -> Result<bool, Failure> {
    let settled = SystemTime::now() - TIME_GRANULARITY;
    let mirror_one = |name: &str| {
        let (from, to) = (data.join(name), target.join(name));
        mirror(&from, &to, settled).map_err(|error| data::unusable(&from, &error))
    };
    let is_running = matches!(Lock::holder(data)?, Holder::Process(_));
    let (lock, paused) = if is_running {
        mirror_one(BROKER)?;
        (None, Some(nats::pause(&data.join(BROKER)).await?))
    } else {
        // Another process cannot start the cluster meanwhile.
        (Some(Lock::take(data).await?), None)
    };
    mirror_one(BROKER)?;
    copy_names(data, target)?;
    drop(paused);
    for name in OF_PROCESS {
        let _ = fs::remove_file(target.join(BROKER).join(name));
    }
    if data.join(ARTIFACTS).is_dir() {
        mirror_one(ARTIFACTS)?;
    }
    File::open(target)
        .and_then(|directory| Ok(rustix::fs::syncfs(directory)?))
        .map_err(|error| data::unusable(target, &error))?;
    if let Some(lock) = lock {
        lock.release();
    }
    Ok(is_running)
}

fn create(target: &Path) -> Result<(), Failure> {
    match DirBuilder::new().mode(0o700).create(target) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(Failure::usage(format!("{} exists", target.display()))
                .with_hint("name a new directory for each backup"))
        }
        created => created.map_err(|error| data::unusable(target, &error)),
    }
}

/// Copies the names of the cluster and of its node. The copy of the node's id names the original directory.
fn copy_names(data: &Path, target: &Path) -> Result<(), Failure> {
    let node = PathBuf::from(restored::NODE);
    data::make_directory(&target.join(&node))?;
    for file in [PathBuf::from("cluster"), node.join("node-id")] {
        let from = data.join(&file);
        fs::copy(&from, target.join(&file)).map_err(|error| data::unusable(&from, &error))?;
    }
    Ok(())
}

/// Makes the directory `to` equal to `from`. Keeps files of an earlier pass that have the same size and time, if the
/// time is before `settled`.
fn mirror(from: &Path, to: &Path, settled: SystemTime) -> io::Result<()> {
    let mut names = BTreeSet::new();
    DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        let (from, to) = (entry.path(), to.join(&name));
        let copied = if kind.is_dir() {
            mirror(&from, &to, settled)
        } else if kind.is_file() {
            copy(&from, &to, settled)
        } else {
            continue;
        };
        match copied {
            // The file was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            copied => copied?,
        }
        names.insert(name);
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if names.contains(&entry.file_name()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, settled: SystemTime) -> io::Result<()> {
    let original = fs::metadata(from)?;
    let time = original.modified()?;
    if let Ok(copied) = fs::metadata(to) {
        let is_same = copied.len() == original.len() && copied.modified()? == time;
        if is_same && time < settled {
            return Ok(());
        }
        // The copy may be read-only.
        fs::remove_file(to)?;
    }
    fs::copy(from, to)?;
    // The time before the copy: a change during the copy is copied by the next pass.
    File::open(to)?.set_modified(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_pass_copies_changed_and_new_files_and_removes_deleted_ones() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let write = |name: &str, text: &str| fs::write(from.join(name), text).unwrap();
        fs::create_dir_all(from.join("below")).unwrap();
        fs::create_dir_all(from.join("deleted")).unwrap();
        write("kept", "one");
        write("below/changed", "one");
        write("deleted/file", "one");
        write("removed", "one");
        let old = SystemTime::now() - Duration::from_secs(60);
        for name in ["kept", "below/changed"] {
            File::open(from.join(name))
                .unwrap()
                .set_modified(old)
                .unwrap();
        }
        let settled = SystemTime::now() - TIME_GRANULARITY;
        mirror(&from, &to, settled).unwrap();
        // Not copied again, because size and time are the same.
        fs::write(to.join("kept"), "two").unwrap();
        File::open(to.join("kept"))
            .unwrap()
            .set_modified(old)
            .unwrap();
        write("below/changed", "two");
        write("below/new", "two");
        fs::remove_dir_all(from.join("deleted")).unwrap();
        fs::remove_file(from.join("removed")).unwrap();
        mirror(&from, &to, settled).unwrap();
        let read = |name: &str| fs::read_to_string(to.join(name)).unwrap();
        let texts = ["kept", "below/changed", "below/new"].map(read);
        assert_eq!(texts, ["two", "two", "two"]);
        assert!(!to.join("deleted").exists());
        assert!(!to.join("removed").exists());
    }

    #[test]
    fn recently_changed_file_is_copied_again() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::write(&from, "two").unwrap();
        let settled = SystemTime::now() - TIME_GRANULARITY;
        copy(&from, &to, settled).unwrap();
        let time = fs::metadata(&from).unwrap().modified().unwrap();
        fs::write(&to, "one").unwrap();
        File::open(&to).unwrap().set_modified(time).unwrap();
        copy(&from, &to, settled).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "two");
    }

    #[test]
    fn existing_target_is_rejected() {
        let target = tempfile::tempdir().unwrap();
        let failure = create(target.path()).unwrap_err();
        assert!(failure.message().ends_with(" exists"), "{failure:?}");
    }
}
