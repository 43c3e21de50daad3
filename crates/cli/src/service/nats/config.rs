//! The configuration of the nats-server of `aod up`.

use std::path::{Path, PathBuf};

/// Maximum file storage of JetStream, in bytes: above the sum of the limits of AOD's streams. Not reserved in advance.
const FILE_STORE_BYTES_MAX: u64 = 20 << 30;

/// Maximum memory storage of JetStream, in bytes: only presence uses it.
const MEMORY_STORE_BYTES_MAX: u64 = 256 << 20;

/// The directory of the streams, below the server's directory.
pub(super) const STORE: &str = "js";

/// Files and ports of the server.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) directory: PathBuf,
    /// Users and passwords, as a fragment of a configuration.
    pub(super) users: PathBuf,
    pub(super) port: u16,
    pub(super) monitoring_port: u16,
}

impl Plan {
    pub(super) fn config_file(&self) -> PathBuf {
        self.directory.join("nats.conf")
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(super) fn monitoring_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.monitoring_port)
    }

    /// The text of the configuration. Its `include` is relative, so the users' fragment must be in the same directory.
    pub(super) fn text(&self) -> String {
        let store = quoted(&self.directory.join(STORE));
        let users = self.users.file_name().unwrap_or_default().to_string_lossy();
        format!(
            "# Generated at each start of `aod up`: do not edit.\n\
             server_name: aod\n\
             listen: \"127.0.0.1:{}\"\n\
             http: \"127.0.0.1:{}\"\n\
             jetstream {{\n  store_dir: {store}\n  \
             # Syncs each write before confirming it, so that confirmed events survive a power failure.\n  \
             sync_interval: always\n  max_file_store: {FILE_STORE_BYTES_MAX}\n  \
             max_memory_store: {MEMORY_STORE_BYTES_MAX}\n}}\n\
             include \"{users}\"\n",
            self.port, self.monitoring_port
        )
    }
}

/// A path as a string of the configuration.
fn quoted(path: &Path) -> String {
    format!(
        "\"{}\"",
        path.to_string_lossy()
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_syncs_each_write_and_listens_on_loopback() {
        let plan = Plan {
            directory: "/data/nats".into(),
            users: "/data/nats/nats-users.conf".into(),
            port: 4222,
            monitoring_port: 8222,
        };
        insta::assert_snapshot!(plan.text());
    }
}
