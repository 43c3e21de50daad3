//! Configuration of a connection to the broker.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Default time without a sign of life after which the queue delivers a launch again, in seconds.
pub const LEASE_SECONDS_DEFAULT: u32 = 30;

/// Address of the broker and limits of its streams.
#[derive(Clone, Debug)]
pub struct Config {
    /// `nats://host:port` or `tls://host:port`, one or more servers of one cluster.
    pub servers: Vec<String>,
    pub credentials: Credentials,
    /// PEM file of the certificate authorities of the servers, instead of the system's.
    pub certificate_authority: Option<PathBuf>,
    /// The program's unique name: letters, digits, `-` and `_`. Inboxes and consumers of the program
    /// contain it.
    pub name: String,
    /// Whether the program creates missing streams and consumers. Without this it waits until another program
    /// has created them, and follows the log without consumers.
    pub makes_streams: bool,
    /// `http://host:port` of one server's monitoring: only monitoring reports whether the server syncs.
    pub monitoring_url: Option<String>,
    /// Time without a sign of life after which the queue delivers a launch again, in seconds; the same
    /// for all programs of a cluster.
    pub lease_seconds: u32,
    /// Copies of each missing stream that the program creates without `limits`, 1 to 5: at most the number
    /// of the cluster's servers.
    pub replicas: usize,
    /// Limits of the streams. None keeps existing streams and creates missing ones with
    /// [`StreamLimits::default`]: for programs that do not manage their broker.
    pub limits: Option<StreamLimits>,
}

impl Config {
    /// Defaults for one server, without credentials.
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

    /// The subject of answers and deliveries: below the inboxes of the user, which the user's rights name.
    pub(crate) fn inbox(&self) -> String {
        let user = match &self.credentials {
            Credentials::None => "anyone",
            Credentials::UserPassword { user, .. } => user,
        };
        format!("{}.{}", inbox(user), self.name)
    }

    /// Limits of new streams.
    pub(crate) fn limits_of_new(&self) -> StreamLimits {
        self.limits.unwrap_or(StreamLimits {
            replicas: self.replicas,
            ..StreamLimits::default()
        })
    }

    /// The servers for messages, without credentials.
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

/// The inboxes of `user`; replaces characters that are invalid in a subject.
pub(crate) fn inbox(user: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let token = |character| if is_plain(character) { character } else { '_' };
    format!("_INBOX.{}", user.chars().map(token).collect::<String>())
}

/// Limits of the streams. The server reserves the sum on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum size of the log, in bytes. Above it the server rejects appends and drops nothing.
    pub events_bytes_max: u64,
    /// Maximum size of the queue, in bytes: launches that wait or run. Above it the queue accepts launches
    /// only after other launches leave it.
    pub work_bytes_max: u64,
    /// Maximum size of the live tail of outputs, in bytes. Above it the server drops the oldest lines.
    pub logs_bytes_max: u64,
    /// Maximum age of lines of output, in seconds.
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

/// The program's credentials for the broker.
#[derive(Clone, Default)]
pub enum Credentials {
    #[default]
    None,
    UserPassword {
        user: String,
        password: String,
    },
}

/// A file without valid credentials.
#[derive(Debug, Error)]
pub enum CredentialsError {
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: io::Error },
    #[error("invalid credentials in {path}; expected two lines: a user and a password")]
    Malformed { path: PathBuf },
}

impl Credentials {
    /// Reads a file of two lines: user and password. Lines that begin with `#` are comments.
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
    fn debug_output_hides_credentials() {
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
