//! Writes secrets as files before the command starts.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use thiserror::Error;

use crate::protocol::SecretFile;

/// Read-only, for the user of gate and command.
const MODE: u32 = 0o400;

/// Why a secret cannot be written. The message does not contain the value.
#[derive(Debug, Error)]
#[error("the secret {} cannot be written: {source}", path.display())]
pub(crate) struct WriteError {
    path: PathBuf,
    source: io::Error,
}

/// Writes all `files`, none of which may exist yet.
pub(crate) fn write(files: &[SecretFile]) -> Result<(), WriteError> {
    for SecretFile { path, value } in files {
        let path = PathBuf::from(path);
        let mut options = OpenOptions::new();
        // Fails for any existing entry, so a link in the image is not followed.
        options.write(true).create_new(true).mode(MODE);
        let written = options
            .open(&path)
            .and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(|source| WriteError { path, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn secret(path: &std::path::Path) -> [SecretFile; 1] {
        [SecretFile {
            path: path.display().to_string(),
            value: "opensesame".into(),
        }]
    }

    #[test]
    fn secret_is_readable_only_for_its_user() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("KEY");
        write(&secret(&path)).expect("a file");
        assert_eq!(
            std::fs::read_to_string(&path).expect("a file"),
            "opensesame"
        );
        let mode = std::fs::metadata(&path)
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o400);
    }

    #[test]
    fn existing_file_is_not_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, elsewhere) = (directory.path().join("KEY"), directory.path().join("else"));
        symlink(&elsewhere, &path).expect("a link");
        let error = write(&secret(&path)).expect_err("a link");
        let text = error.to_string();
        assert!(
            text.contains("KEY") && !text.contains("opensesame"),
            "{text}"
        );
        assert!(!elsewhere.exists());
    }
}
