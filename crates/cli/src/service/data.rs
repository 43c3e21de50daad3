//! The data directory, and atomic writes of files in it.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Readable only for the owner.
const MODE_PRIVATE: u32 = 0o600;

/// Readable for all users: for files without secrets.
const MODE_PUBLIC: u32 = 0o644;

/// Programs that containers mount: read-only.
const MODE_PROGRAM: u32 = 0o555;

/// Maximum length of a name that users choose, in bytes; it also fits into a subject.
pub(super) const NAME_BYTES_MAX: usize = 63;

/// Random bytes of a secret: 256 bits.
const SECRET_BYTES: usize = 32;

/// The data directory: `given`, else `~/.local/share/aod`; always absolute.
pub fn directory(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::home_dir()
            .filter(|home| home.is_absolute())
            .map(|home| home.join(".local/share/aod"))
            .ok_or_else(|| {
                Failure::usage("no home directory found")
                    .with_hint("pass a data directory with --data")
            })?,
    };
    std::path::absolute(&path).map_err(|error| unusable(&path, &error))
}

/// Whether `name` can be part of a file name: 1 to [`NAME_BYTES_MAX`] letters, digits, `-` and `_`.
pub(super) fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// The failure for a file or directory that cannot be used.
pub fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::environment(format!("{} cannot be used", path.display())).because(error)
}

/// Creates a directory and its parents; only the owner can enter it.
pub fn make_directory(path: &Path) -> Result<(), Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| unusable(path, &error))
}

/// Writes `text` by rename, readable only for the owner.
pub fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    write(path, text.as_bytes(), MODE_PRIVATE).map_err(|error| unusable(path, &error))
}

/// Writes `text` by rename, readable for all users.
pub fn write_public(path: &Path, text: &str) -> Result<(), Failure> {
    write(path, text.as_bytes(), MODE_PUBLIC).map_err(|error| unusable(path, &error))
}

/// Writes a program by rename, because containers may be running the old one.
pub fn write_program(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let is_same = fs::read(path).is_ok_and(|found| found == bytes);
    if is_same
        && fs::metadata(path)
            .is_ok_and(|metadata| metadata.permissions().mode() & 0o777 == MODE_PROGRAM)
    {
        return Ok(());
    }
    write(path, bytes, MODE_PROGRAM).map_err(|error| unusable(path, &error))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut draft = tempfile::NamedTempFile::new_in(directory)?;
    draft.write_all(bytes)?;
    draft
        .as_file()
        .set_permissions(Permissions::from_mode(mode))?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    Ok(())
}

/// Generates a secret: 64 hexadecimal digits.
pub(super) fn draw_secret() -> Result<String, Failure> {
    let mut bytes = [0; SECRET_BYTES];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).map_err(
        |error| Failure::environment("the system returns no random numbers").because(&error),
    )?;
    let mut text = String::with_capacity(2 * SECRET_BYTES);
    for byte in bytes {
        // Writing to memory does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The names of files, without their directory.
    pub(in crate::service) fn names(files: &[PathBuf]) -> Vec<&str> {
        files
            .iter()
            .map(|file| file.file_name().unwrap().to_str().unwrap())
            .collect()
    }

    #[test]
    fn files_are_written_with_private_or_read_only_mode() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            fs::metadata(directory.path().join(name))
                .unwrap()
                .permissions()
                .mode()
                & 0o777
        };
        write_private(&directory.path().join("token"), "secret").unwrap();
        assert_eq!(mode("token"), 0o600);
        let program = directory.path().join("program");
        for bytes in [b"one", b"two"] {
            write_program(&program, bytes).unwrap();
            assert_eq!(
                (fs::read(&program).unwrap().as_slice(), mode("program")),
                (bytes.as_slice(), 0o555)
            );
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn generated_secrets_differ() {
        let (one, other) = (draw_secret().unwrap(), draw_secret().unwrap());
        assert_eq!(one.len(), 64);
        assert_ne!(one, other);
    }
}
