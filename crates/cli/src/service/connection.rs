//! `connection.json`: commands read the address of a running `aod up` from it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::data;
use crate::failure::Failure;

/// The address, token and process of a running `aod up`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connection {
    pub(crate) url: String,
    pub(crate) token_file: PathBuf,
    pub(crate) pid: u32,
}

impl Connection {
    fn path(data: &Path) -> PathBuf {
        data.join("connection.json")
    }

    /// Reads the file; none if it does not exist, is invalid, or was copied with the data directory of another cluster.
    pub(crate) fn read(data: &Path) -> Option<Self> {
        let text = fs::read(Self::path(data)).ok()?;
        let connection: Self = serde_json::from_slice(&text).ok()?;
        let token = fs::canonicalize(&connection.token_file).ok()?;
        token
            .starts_with(fs::canonicalize(data).ok()?)
            .then_some(connection)
    }

    pub(crate) fn write(&self, data: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).expect("texts and a number are JSON");
        data::write_private(&Self::path(data), &text)
    }

    /// Removes the file, if it exists.
    pub(crate) fn remove(data: &Path) -> Result<(), Failure> {
        let path = Self::path(data);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(data::unusable(&path, &error))
            }
            _ => Ok(()),
        }
    }
}
