//! At most one `aod up` for a data directory, by a kernel lock that ends with its process.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Connection;
use super::data;
use crate::exit::Exit;
use crate::failure::Failure;

/// Maximum time of attempts to take a held lock.
const TAKE_PATIENCE: Duration = Duration::from_millis(500);

/// The pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

/// The holder of the lock of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    /// A process; its id is none until the process has written it.
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

    /// Takes the lock and writes the id of this process into it. A process that was just killed may hold it for a
    /// moment longer.
    pub(crate) async fn take(data: &Path) -> Result<Self, Failure> {
        let path = Self::path(data);
        let mut file = Self::open(&path)?;
        let deadline = Instant::now() + TAKE_PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    sleep(RETRY_INTERVAL).await;
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
        // A killed process may have left an outdated file.
        Connection::remove(data)?;
        Ok(Self { file })
    }

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

    /// Releases the lock; so does the end of the process.
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
    let by = id.map_or_else(String::new, |id| format!(", process {id}"));
    let at = Connection::read(data)
        .map_or_else(String::new, |connection| format!(", {}", connection.url));
    Failure::new(
        Exit::Usage,
        format!(
            "`aod up` already runs with the data directory {}{by}{at}",
            data.display()
        ),
    )
    .with_hint(
        "use the running cluster, stop it with `aod down`, or choose another directory with --data",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn second_lock_on_same_directory_reports_the_holder() {
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
                .contains(&format!(", process {}", std::process::id()))
        );
        lock.release();
        assert_eq!(Lock::holder(data).unwrap(), Holder::Nobody);
        Lock::take(data).await.unwrap();
    }
}
