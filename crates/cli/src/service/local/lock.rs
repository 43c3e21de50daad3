//! One `aod up` a data directory: a lock of the kernel, which ends with its process however that ends.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Connection;
use super::data;
use crate::exit::Exit;
use crate::failure::Failure;

/// How long a lock that is held is tried.
const TAKE_PATIENCE: Duration = Duration::from_millis(500);

/// The pause between two tries.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The lock, held.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

/// Who has the lock of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    /// A process; none while it has not said which.
    Process(Option<u32>),
}

impl Lock {
    fn path(data: &Path) -> PathBuf {
        data.join("lock")
    }

    fn open(path: &Path) -> Result<File, Failure> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        file.map_err(|error| data::unusable(path, &error))
    }

    /// Takes the lock and leaves the id of this process in it. A process that was just killed may
    /// hold it for a moment longer.
    pub(crate) async fn take(data: &Path) -> Result<Self, Failure> {
        let path = Self::path(data);
        let mut file = Self::open(&path)?;
        let deadline = Instant::now() + TAKE_PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    sleep(LOOK_INTERVAL).await;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(runs_already(data, read_id(&mut file)));
                }
                Err(TryLockError::Error(error)) => return Err(data::unusable(&path, &error)),
            }
        }
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(|error| data::unusable(&path, &error))?;
        // What a killed process left says nothing any more.
        Connection::remove(data)?;
        Ok(Self { file })
    }

    /// Who has it now.
    pub(crate) fn holder(data: &Path) -> Result<Holder, Failure> {
        let path = Self::path(data);
        if !path.exists() {
            return Ok(Holder::Nobody);
        }
        let mut file = Self::open(&path)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Holder::Nobody),
            Err(TryLockError::WouldBlock) => Ok(Holder::Process(read_id(&mut file))),
            Err(TryLockError::Error(error)) => Err(data::unusable(&path, &error)),
        }
    }

    /// Gives it back; so would the end of the process.
    pub(crate) fn release(self) {
        let _ = self.file.set_len(0);
    }
}

fn read_id(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn runs_already(data: &Path, id: Option<u32>) -> Failure {
    let by = id.map_or_else(String::new, |id| format!(" as process {id}"));
    let at = Connection::read(data)
        .map_or_else(String::new, |connection| format!(", at {}", connection.url));
    Failure::new(
        Exit::Usage,
        format!("`aod up` on {} runs already{by}{at}", data.display()),
    )
    .with_hint("use it as it is, stop it with `aod down`, or choose another directory with --data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_one_is_told_who_runs() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        assert_eq!(Lock::holder(data).unwrap(), Holder::Nobody);
        let lock = Lock::take(data).await.unwrap();
        assert_eq!(
            Lock::holder(data).unwrap(),
            Holder::Process(Some(std::process::id()))
        );
        let refusal = Lock::take(data).await.unwrap_err();
        assert!(
            refusal
                .render()
                .contains(&format!("runs already as process {}", std::process::id()))
        );
        lock.release();
        assert_eq!(Lock::holder(data).unwrap(), Holder::Nobody);
        Lock::take(data).await.unwrap();
    }
}
