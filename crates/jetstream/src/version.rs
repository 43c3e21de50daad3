//! Supported versions of the server.

use std::fmt;

/// The oldest supported version: guards over wildcards (2.11), batched reads (2.11), reliable sourcing of
/// a work queue (2.14), synced writes committed in groups on replicated streams (2.15).
pub const SERVER_VERSION_MIN: ServerVersion = ServerVersion {
    major: 2,
    minor: 15,
};

/// The version of a nats-server, without the patch number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    pub major: u32,
    pub minor: u32,
}

impl ServerVersion {
    /// Parses versions such as `2.15.1` and `2.15.0-RC.1`; none for other texts.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().trim_start_matches('v').split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        Some(Self { major, minor })
    }

    /// Whether this version is supported.
    pub fn is_supported(self) -> bool {
        self >= SERVER_VERSION_MIN
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        let is_supported =
            |text| ServerVersion::parse(text).is_some_and(ServerVersion::is_supported);
        for text in ["2.15.0", "2.15.1", "v2.15.0-RC.1", "2.100.0", "3.0.0"] {
            assert!(is_supported(text), "{text}");
        }
        for text in ["2.9.10", "2.14.9", "1.99.0", "", "2", "new"] {
            assert!(!is_supported(text), "{text}");
        }
    }
}
