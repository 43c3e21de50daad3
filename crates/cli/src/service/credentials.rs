//! Credentials of a cluster: the broker users, the operator's token and the seal key. Created once, then kept.

use std::fs;
use std::path::{Path, PathBuf};

use aod_domain::audit::SealKey;
use aod_domain::digest::Digest;

use super::data;
use super::users::Users;
use crate::failure::Failure;

/// The file name of a generated seal key.
const SEAL_KEY_FILE: &str = "seal.key";

/// The files with the credentials of a cluster.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub users: Users,
    /// The operator's token for gateways: 64 hexadecimal digits.
    pub token: PathBuf,
    /// The key with which gateways seal trees: 64 hexadecimal digits.
    pub seal_key: PathBuf,
}

impl Credentials {
    /// The paths of these files in `directory`.
    pub fn of(directory: &Path) -> Self {
        Self {
            users: Users::of(directory),
            token: directory.join("token"),
            seal_key: directory.join(SEAL_KEY_FILE),
        }
    }

    /// Creates missing files; returns them.
    pub fn ensure(directory: &Path) -> Result<(Self, Vec<PathBuf>), Failure> {
        data::make_directory(directory)?;
        let files = Self::of(directory);
        let mut made = files.users.ensure()?;
        if !files.token.exists() {
            data::write_private(&files.token, &format!("{}\n", data::draw_secret()?))?;
            made.push(files.token.clone());
        }
        if ensure_seal_key(&files.seal_key)? {
            made.push(files.seal_key.clone());
        }
        Ok((files, made))
    }
}

/// Creates a seal key if `path` does not exist; returns whether it did.
fn ensure_seal_key(path: &Path) -> Result<bool, Failure> {
    if path.exists() {
        return Ok(false);
    }
    data::write_private(path, &format!("{}\n", data::draw_secret()?))?;
    Ok(true)
}

/// Reads the seal key in `given`, else the seal key of the data directory, which is created once.
pub(crate) fn seal_key(given: Option<&Path>, directory: &Path) -> Result<SealKey, Failure> {
    let Some(path) = given else {
        let path = directory.join(SEAL_KEY_FILE);
        ensure_seal_key(&path)?;
        return read_seal_key(&path);
    };
    read_seal_key(path)
}

fn read_seal_key(path: &Path) -> Result<SealKey, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("cannot read the seal key {}", path.display()))
            .because(&error)
            .with_hint("create one with `aod credentials DIR`")
    })?;
    // A digest has the same form: 32 bytes as hexadecimal digits.
    let seed = text.trim().parse::<Digest>().map_err(|_| {
        let message = format!(
            "invalid seal key {}: expected 64 lower-case hexadecimal digits",
            path.display()
        );
        Failure::usage(message).with_hint("create one with `aod credentials DIR`")
    })?;
    Ok(SealKey::from_seed(seed.as_bytes()))
}

/// Reads a token from its file.
pub(crate) fn read_token(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("cannot read the token file {}", path.display())).because(&error)
    })?;
    let token = text.trim();
    let is_word = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_word {
        return Err(Failure::usage(format!(
            "invalid token file {}: expected one word",
            path.display()
        )));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ensure_keeps_existing_credentials() {
        let directory = tempfile::tempdir().unwrap();
        let (files, made) = Credentials::ensure(directory.path()).unwrap();
        assert_eq!(made.len(), 6);
        let token = read_token(&files.token).unwrap();
        assert_eq!(
            Credentials::ensure(directory.path()).unwrap().1,
            Vec::<PathBuf>::new()
        );
        assert_eq!(read_token(&files.token).unwrap(), token);
    }

    #[test]
    fn seal_key_is_created_once_and_invalid_keys_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let key = |given| seal_key(given, directory.path());
        let made = key(None).unwrap().public_key();
        assert_eq!(key(None).unwrap().public_key(), made);
        let path = directory.path().join(SEAL_KEY_FILE);
        assert_eq!(key(Some(&path)).unwrap().public_key(), made);
        for text in ["", "00", &"G".repeat(64)] {
            fs::write(&path, text).unwrap();
            let refused = key(None).unwrap_err().render();
            assert!(refused.contains("invalid seal key"), "{refused}");
        }
        let missing = directory.path().join("missing");
        assert!(key(Some(&missing)).is_err());
        assert!(!missing.exists());
    }

    #[test]
    fn token_file_without_exactly_one_word_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        for text in ["", "\n", "two words"] {
            fs::write(&path, text).unwrap();
            assert!(
                read_token(&path)
                    .unwrap_err()
                    .render()
                    .contains("invalid token file"),
                "{text:?}"
            );
        }
    }
}
