//! What the operator keeps for capsules under names: keys, passwords, tokens.
//!
//! A value is in this process, in the socket to a gate and in the memory of a container; never on a
//! disk of ours, in an event, a log, an environment or an argument.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::tenant::Tenant;
use async_trait::async_trait;
use thiserror::Error;
use zeroize::Zeroizing;

/// Largest value, in bytes: a chain of certificates with its key; several fit into what a gate is told.
pub const SECRET_BYTES_MAX: usize = 16 * 1024;

/// Keeps secrets. Asked again each time, so that a new value counts from the next run on.
#[async_trait]
pub trait SecretStore: fmt::Debug + Send + Sync {
    /// The value of `name` as it is kept for `tenant`, at most [`SECRET_BYTES_MAX`]. What is kept for one tenant
    /// no other gets.
    async fn get(&self, tenant: &Tenant, name: &str) -> Result<SecretValue, SecretError>;
}

/// The value of a secret: text that is never shown, and is overwritten when the last copy is dropped.
#[derive(Clone)]
pub struct SecretValue(Arc<Zeroizing<String>>);

impl SecretValue {
    pub fn new(value: String) -> Self {
        Self(Arc::new(Zeroizing::new(value)))
    }

    /// The value itself. Whoever asks sees to it that it goes no further than it must.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Reads what the store of `name` holds, without the end of its last line.
    ///
    /// # Errors
    /// [`SecretError::Unusable`] for what is no text of 1 to [`SECRET_BYTES_MAX`] bytes.
    pub fn read(name: &str, bytes: Vec<u8>) -> Result<Self, SecretError> {
        let bytes = Zeroizing::new(bytes);
        let unusable = |reason: &str| SecretError::Unusable {
            name: name.to_owned(),
            reason: reason.to_owned(),
        };
        if bytes.len() > SECRET_BYTES_MAX {
            let text = format!("it is larger than {SECRET_BYTES_MAX} bytes");
            return Err(unusable(&text));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| unusable("it is not UTF-8"))?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.is_empty() {
            return Err(unusable("it is empty"));
        }
        Ok(Self::new(text.to_owned()))
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretValue(***)")
    }
}

/// Why there is no value; the operator mends each. None says anything of a value.
#[derive(Debug, Error)]
pub enum SecretError {
    /// Nobody keeps it.
    #[error("{name}: {reason}")]
    Absent { name: String, reason: String },
    /// Others than the node could have read it: it is not used.
    #[error(
        "{name}: {} has the mode {mode:04o} and can be used by others; expected 0600 or 0400", path.display()
    )]
    Exposed {
        name: String,
        path: PathBuf,
        mode: u32,
    },
    /// It is there, and no text of a fitting size.
    #[error("{name}: {reason}")]
    Unusable { name: String, reason: String },
    /// The store cannot be read.
    #[error("{name}: {place} cannot be used")]
    Store {
        name: String,
        place: String,
        source: io::Error,
    },
    /// The command did not end.
    #[error("{name}: the secret command has not ended within {} s", limit.as_secs())]
    TimedOut { name: String, limit: Duration },
}

impl SecretError {
    /// Whether nobody keeps it, as far as the store can tell.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }
}

/// The store of a node whose operator has named none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

#[async_trait]
impl SecretStore for NoSecrets {
    async fn get(&self, _: &Tenant, name: &str) -> Result<SecretValue, SecretError> {
        Err(SecretError::Absent {
            name: name.to_owned(),
            reason: "its node was started without --secrets and --secret-command".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_shown() {
        let value = SecretValue::new("opensesame".to_owned());
        assert_eq!(format!("{value:?}"), "SecretValue(***)");
        assert_eq!(value.expose(), "opensesame");
    }

    #[test]
    fn the_end_of_the_last_line_is_not_part_of_a_value() {
        for text in ["a\nb", "a\nb\n", "a\nb\r\n"] {
            let value = SecretValue::read("NAME", text.into()).unwrap();
            assert_eq!(value.expose(), "a\nb");
        }
        let value = SecretValue::read("NAME", b"a\n\n".to_vec()).unwrap();
        assert_eq!(value.expose(), "a\n");
    }

    #[test]
    fn what_is_no_text_of_a_fitting_size_is_refused() {
        let large = vec![b'x'; SECRET_BYTES_MAX + 1];
        let refused = [
            (b"\n".to_vec(), "NAME: it is empty"),
            (b"\xff".to_vec(), "NAME: it is not UTF-8"),
            (large, "NAME: it is larger than 16384 bytes"),
        ];
        for (bytes, expected) in refused {
            let error = SecretValue::read("NAME", bytes).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
