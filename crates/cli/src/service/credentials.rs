//! Credentials of a cluster: users of the broker, the token of people, and the key of seals. Made once, then kept.

use std::fs;
use std::path::{Path, PathBuf};

use aod_domain::audit::SealKey;
use aod_domain::digest::Digest;

use super::data;
use super::users::Users;
use crate::failure::Failure;

/// The file of the key of seals, wherever it is made.
const SEAL_KEY_FILE: &str = "seal.key";

/// Where the credentials of a cluster are.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub users: Users,
    /// What people show to a gateway: 64 hexadecimal digits.
    pub token: PathBuf,
    /// What gateways seal with: 64 hexadecimal digits.
    pub seal_key: PathBuf,
}

impl Credentials {
    /// Where they are in `directory`.
    pub fn of(directory: &Path) -> Self {
        Self {
            users: Users::of(directory),
            token: directory.join("token"),
            seal_key: directory.join(SEAL_KEY_FILE),
        }
    }

    /// Makes what is missing; answers the files that it made.
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

/// Makes a key of seals where there is none; whether there was none.
fn ensure_seal_key(path: &Path) -> Result<bool, Failure> {
    if path.exists() {
        return Ok(false);
    }
    data::write_private(path, &format!("{}\n", data::draw_secret()?))?;
    Ok(true)
}

/// The key of seals in `given`, else that of the data directory, which is made once.
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
        Failure::usage(format!("the seal key {} cannot be read", path.display()))
            .because(&error)
            .with_hint("`aod credentials DIR` makes one")
    })?;
    // A digest has the same form: 32 bytes as hexadecimal digits.
    let seed = text.trim().parse::<Digest>().map_err(|_| {
        let message = format!(
            "the seal key {} holds no key: 64 lower-case hexadecimal digits were expected",
            path.display()
        );
        Failure::usage(message).with_hint("`aod credentials DIR` makes one")
    })?;
    Ok(SealKey::from_seed(seed.as_bytes()))
}

/// Reads a token from its file.
pub(crate) fn read_token(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("the token file {} cannot be read", path.display())).because(&error)
    })?;
    let token = text.trim();
    let is_word = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_word {
        return Err(Failure::usage(format!(
            "the token file {} holds no token: one word was expected",
            path.display()
        )));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_is_kept() {
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
    fn a_seal_key_is_made_once_and_anything_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let key = |given| seal_key(given, directory.path());
        let made = key(None).unwrap().public_key();
        assert_eq!(key(None).unwrap().public_key(), made);
        let path = directory.path().join(SEAL_KEY_FILE);
        assert_eq!(key(Some(&path)).unwrap().public_key(), made);
        for text in ["", "00", &"G".repeat(64)] {
            fs::write(&path, text).unwrap();
            let refused = key(None).unwrap_err().render();
            assert!(refused.contains("holds no key"), "{refused}");
        }
        let missing = directory.path().join("missing");
        assert!(key(Some(&missing)).is_err());
        assert!(!missing.exists());
    }

    #[test]
    fn an_empty_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        for text in ["", "\n", "two words"] {
            fs::write(&path, text).unwrap();
            assert!(
                read_token(&path)
                    .unwrap_err()
                    .render()
                    .contains("holds no token"),
                "{text:?}"
            );
        }
    }
}
