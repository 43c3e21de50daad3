//! The errors of the kit.

use std::io;
use std::path::{Path, PathBuf};

use aod_domain::file_name;

/// Why the kit cannot use a directory, by cause. A message does not repeat its source.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} cannot be read", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} cannot be packed", path.display())]
    NotPacked { path: PathBuf, source: io::Error },
    #[error("{} cannot be created", path.display())]
    NotCreated { path: PathBuf, source: io::Error },
    /// `file` is a name in the new directory.
    #[error("{file} cannot be written")]
    NotWritten {
        file: &'static str,
        source: io::Error,
    },
    #[error("a temporary file cannot be created")]
    NoTemporaryFile { source: io::Error },
    #[error("{} cannot be part of a capsule", path.display())]
    InvalidName {
        path: PathBuf,
        source: file_name::Rejection,
    },
    /// The author must change the directory or its name.
    #[error("{message}")]
    Refused {
        message: String,
        /// Each problem with its place.
        details: Vec<String>,
        /// A suggested fix.
        hint: Option<String>,
    },
}

impl Error {
    pub(crate) fn unreadable(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Unreadable { path, source }
    }

    /// A refusal without details and hint.
    pub(crate) fn refused(message: String) -> Self {
        Self::Refused {
            message,
            details: Vec::new(),
            hint: None,
        }
    }
}
