//! What a program says to reach the broker. Where the values come from is left to the program.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Delivered launches come again after this time without a sign of life, in seconds, unless the
/// configuration says.
pub const LEASE_SECONDS_DEFAULT: u32 = 30;

/// How to reach the broker, and what its streams may hold.
#[derive(Clone, Debug)]
pub struct Config {
    /// `nats://host:port` or `tls://host:port`, one or more servers of one cluster.
    pub servers: Vec<String>,
    pub credentials: Credentials,
    /// PEM file of the authorities that sign the servers' certificates, instead of the system's.
    pub certificate_authority: Option<PathBuf>,
    /// The program's name, different for each: letters, digits, `-` and `_`. Its inboxes and
    /// consumers carry it.
    pub name: String,
    /// Whether it makes what is missing, streams and consumers. One that does not waits until another program has
    /// made them, and follows the log by what is told of it; it needs no right to.
    pub makes_streams: bool,
    /// `http://host:port` of one server's monitoring: only there can be asked whether it syncs.
    pub monitoring_url: Option<String>,
    /// Time after which a delivered launch without a sign of life comes again, in seconds; the
    /// same for all programs of a cluster.
    pub lease_seconds: u32,
    /// Copies of each stream that is missing and made without `limits`, 1 to 5: never more than the
    /// cluster has servers.
    pub replicas: usize,
    /// What the streams may hold. None leaves streams as they are and makes missing ones by
    /// [`StreamLimits::default`]: for programs that use a broker that others look after.
    pub limits: Option<StreamLimits>,
}

impl Config {
    /// Without credentials, on one server, with defaults.
    pub fn new(server: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            servers: vec![server.into()],
            credentials: Credentials::None,
            certificate_authority: None,
            name: name.into(),
            makes_streams: true,
            monitoring_url: None,
            lease_seconds: LEASE_SECONDS_DEFAULT,
            replicas: 1,
            limits: None,
        }
    }

    /// Where answers and deliveries come in: below the subject of the user, which its rights name.
    pub(crate) fn inbox(&self) -> String {
        let user = match &self.credentials {
            Credentials::None => "anyone",
            Credentials::UserPassword { user, .. } => user,
        };
        format!("{}.{}", inbox(user), self.name)
    }

    /// What streams that are missing are made with.
    pub(crate) fn limits_of_new(&self) -> StreamLimits {
        self.limits.unwrap_or(StreamLimits {
            replicas: self.replicas,
            ..StreamLimits::default()
        })
    }

    /// The servers as messages may show them: without credentials.
    pub(crate) fn servers_shown(&self) -> String {
        self.servers
            .iter()
            .map(|server| without_userinfo(server))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn without_userinfo(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, address))) => format!("{scheme}://{address}"),
        _ => url.to_owned(),
    }
}

/// The inboxes of `user`; what cannot stand in a subject is replaced.
pub(crate) fn inbox(user: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let token = |character| if is_plain(character) { character } else { '_' };
    format!("_INBOX.{}", user.chars().map(token).collect::<String>())
}

/// What the streams may hold. The server reserves the sum on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Of the log, in bytes. Beyond it appends are refused; nothing is dropped.
    pub events_bytes_max: u64,
    /// Of the queue, in bytes: launches that wait or run. Beyond it the queue takes launches as
    /// others leave it.
    pub work_bytes_max: u64,
    /// Of the live tail of outputs, in bytes. Beyond it the oldest lines go.
    pub logs_bytes_max: u64,
    /// Age at which lines of output go, in seconds.
    pub logs_age_seconds_max: u64,
    /// Copies of each stream in the cluster: 1, 3 or 5.
    pub replicas: usize,
}

impl Default for StreamLimits {
    /// For one host: a million runs of 6 KB each, 32,000 of the largest launches, a day of output.
    fn default() -> Self {
        Self {
            events_bytes_max: 6 << 30,
            work_bytes_max: 1 << 30,
            logs_bytes_max: 1 << 30,
            logs_age_seconds_max: 24 * 60 * 60,
            replicas: 1,
        }
    }
}

/// Who the program is to the broker.
#[derive(Clone, Default)]
pub enum Credentials {
    #[default]
    None,
    UserPassword {
        user: String,
        password: String,
    },
}

/// A file that holds no credentials.
#[derive(Debug, Error)]
pub enum CredentialsError {
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} must hold two lines: a user and a password")]
    Malformed { path: PathBuf },
}

impl Credentials {
    /// Reads a file of two lines: user and password. Lines that begin with `#` are for people.
    pub fn from_file(path: &Path) -> Result<Self, CredentialsError> {
        let text = std::fs::read_to_string(path).map_err(|source| CredentialsError::Read {
            path: path.to_owned(),
            source,
        })?;
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        match lines[..] {
            [user, password] if !user.is_empty() && !password.is_empty() => {
                Ok(Self::UserPassword {
                    user: user.to_owned(),
                    password: password.to_owned(),
                })
            }
            _ => Err(CredentialsError::Malformed {
                path: path.to_owned(),
            }),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => formatter.write_str("None"),
            Self::UserPassword { user, .. } => write!(formatter, "UserPassword({user}, …)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let config = Config {
            servers: vec!["nats://me:secret@one:4222".into(), "tls://two".into()],
            credentials: Credentials::UserPassword {
                user: "me".into(),
                password: "secret".into(),
            },
            ..Config::new("", "test")
        };
        assert_eq!(config.servers_shown(), "nats://one:4222, tls://two");
        assert!(!format!("{:?}", config.credentials).contains("secret"));
    }
}
