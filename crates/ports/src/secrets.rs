//! Secrets that the operator stores for capsules by name: keys, passwords, tokens.
//!
//! A value exists in this process, in the socket to a gate and in the memory of a container; never on a disk of AOD,
//! in an event, a log, an environment or an argument.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::tenant::Tenant;
use async_trait::async_trait;
use thiserror::Error;
use zeroize::Zeroizing;

/// Maximum size of a value in bytes: a chain of certificates with its key; several fit into a message to a gate.
pub const SECRET_BYTES_MAX: usize = 16 * 1024;

/// A store of secrets. Read for each use, so that a new value is in effect from the next run on.
#[async_trait]
pub trait SecretStore: fmt::Debug + Send + Sync {
    /// The value of `name` for `tenant`, at most [`SECRET_BYTES_MAX`]. A tenant never gets the value of another one.
    async fn get(&self, tenant: &Tenant, name: &str) -> Result<SecretValue, SecretError>;
}

/// The value of a secret: text that is never printed, and is overwritten when its last copy is dropped.
#[derive(Clone)]
pub struct SecretValue(Arc<Zeroizing<String>>);

impl SecretValue {
    pub fn new(value: String) -> Self {
        Self(Arc::new(Zeroizing::new(value)))
    }

    /// The value itself. The caller limits where it goes.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Reads the content of the store for `name`, without the line end of its last line.
    ///
    /// # Errors
    /// [`SecretError::Unusable`] unless the content is a text of 1 to [`SECRET_BYTES_MAX`] bytes.
    pub fn read(name: &str, bytes: Vec<u8>) -> Result<Self, SecretError> {
        let bytes = Zeroizing::new(bytes);
        let unusable = |reason: &str| SecretError::Unusable {
            name: name.to_owned(),
            reason: reason.to_owned(),
        };
        if bytes.len() > SECRET_BYTES_MAX {
            let text = format!("the value is larger than {SECRET_BYTES_MAX} bytes");
            return Err(unusable(&text));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| unusable("the value is not UTF-8"))?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.is_empty() {
            return Err(unusable("the value is empty"));
        }
        Ok(Self::new(text.to_owned()))
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretValue(***)")
    }
}

/// Why there is no value; to be fixed by the operator. No error contains a part of a value.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The secret does not exist.
    #[error("{name}: {reason}")]
    Absent { name: String, reason: String },
    /// Users other than the node can read the file: the value is not used.
    #[error(
        "{name}: {} has the mode {mode:04o}, which gives other users access; expected 0600 or 0400", path.display()
    )]
    Exposed {
        name: String,
        path: PathBuf,
        mode: u32,
    },
    /// The value exists, but is not a text of an allowed size.
    #[error("{name}: {reason}")]
    Unusable { name: String, reason: String },
    /// The store cannot be read.
    #[error("{name}: cannot read {place}")]
    Store {
        name: String,
        place: String,
        source: io::Error,
    },
    /// The command did not end.
    #[error("{name}: the secret command did not end within {} s", limit.as_secs())]
    TimedOut { name: String, limit: Duration },
}

impl SecretError {
    /// Whether the secret does not exist, as far as the store knows.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }
}

/// The store of a node that was started without one.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

#[async_trait]
impl SecretStore for NoSecrets {
    async fn get(&self, _: &Tenant, name: &str) -> Result<SecretValue, SecretError> {
        Err(SecretError::Absent {
            name: name.to_owned(),
            reason: "the node runs without --secrets and --secret-command".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_value_is_never_printed() {
        let value = SecretValue::new("opensesame".to_owned());
        assert_eq!(format!("{value:?}"), "SecretValue(***)");
        assert_eq!(value.expose(), "opensesame");
    }

    #[test]
    fn line_end_of_last_line_is_not_part_of_secret() {
        for text in ["a\nb", "a\nb\n", "a\nb\r\n"] {
            let value = SecretValue::read("NAME", text.into()).unwrap();
            assert_eq!(value.expose(), "a\nb");
        }
        let value = SecretValue::read("NAME", b"a\n\n".to_vec()).unwrap();
        assert_eq!(value.expose(), "a\n");
    }

    #[test]
    fn empty_binary_or_oversized_secret_is_rejected() {
        let large = vec![b'x'; SECRET_BYTES_MAX + 1];
        let refused = [
            (b"\n".to_vec(), "NAME: the value is empty"),
            (b"\xff".to_vec(), "NAME: the value is not UTF-8"),
            (large, "NAME: the value is larger than 16384 bytes"),
        ];
        for (bytes, expected) in refused {
            let error = SecretValue::read("NAME", bytes).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
