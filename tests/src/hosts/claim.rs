//! The number of a network, unique on this machine while it is held.
//!
//! The number is a locked file. The kernel releases the lock when its process ends for any reason: a file without a
//! lock belongs to a killed test.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

use super::commands::run;
use super::{BASE_DIRECTORY, address_of};

/// Numbers of networks: the third byte of their addresses.
const NUMBERS: std::ops::Range<u8> = 0..250;

/// A claimed number.
#[derive(Debug)]
pub(super) struct Claim {
    number: u8,
    /// Closing it releases the number.
    _lock: File,
}

impl Claim {
    /// Takes the first free number whose addresses no interface of this machine has.
    pub(super) fn take() -> Self {
        fs::create_dir_all(BASE_DIRECTORY).expect("a test directory");
        NUMBERS
            .filter_map(Self::try_take)
            .find(|claim| !is_addressed(claim.number))
            .expect("one of 250 numbers is free")
    }

    /// Takes the numbers of killed tests.
    pub(super) fn take_abandoned() -> Vec<Self> {
        NUMBERS
            .filter(|&number| path(number).exists())
            .filter_map(Self::try_take)
            .collect()
    }

    pub(super) fn number(&self) -> u8 {
        self.number
    }

    fn try_take(number: u8) -> Option<Self> {
        let path = path(number);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let lock = lock.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        lock.try_lock().ok()?;
        // The previous holder may have removed the file, and another process created a new one.
        let is_current = fs::metadata(&path)
            .is_ok_and(|found| found.ino() == lock.metadata().expect("an open file").ino());
        is_current.then_some(Self {
            number,
            _lock: lock,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_file(path(self.number));
        // Succeeds only for the last network.
        let _ = fs::remove_dir(BASE_DIRECTORY);
    }
}

fn path(number: u8) -> PathBuf {
    PathBuf::from(BASE_DIRECTORY).join(format!("{number}.lock"))
}

fn is_addressed(number: u8) -> bool {
    let range = format!("{}/24", address_of(number, 0));
    !run(Command::new("ip").args(["-o", "-4", "addr", "show", "to", &range])).is_empty()
}
