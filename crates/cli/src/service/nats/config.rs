//! The configuration of our own nats-server.

use std::path::{Path, PathBuf};

/// Most that JetStream may keep in files, in bytes: the log, the queue, the live logs and artifacts,
/// as our streams are limited, and room above. It is taken as it is needed.
const FILE_STORE_BYTES_MAX: u64 = 20 << 30;

/// Most that it may keep in memory, in bytes: who is there, and nothing else.
const MEMORY_STORE_BYTES_MAX: u64 = 256 << 20;

/// Where it keeps streams, below its directory.
pub(super) const STORE: &str = "js";

/// Where our server keeps its things, and how it is reached.
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

    /// The text of the configuration; the users' fragment lies in the same directory, since a server
    /// looks for included files relative to its own.
    pub(super) fn text(&self) -> String {
        let store = quoted(&self.directory.join(STORE));
        let users = self.users.file_name().unwrap_or_default().to_string_lossy();
        format!(
            "# Made anew at each start of `aod up`.\n\
             server_name: aod\n\
             listen: \"127.0.0.1:{}\"\n\
             http: \"127.0.0.1:{}\"\n\
             jetstream {{\n  store_dir: {store}\n  \
             # A confirmed event survives the loss of power: synced before it is confirmed.\n  \
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
    fn the_configuration_syncs_each_write_and_listens_on_loopback() {
        let plan = Plan {
            directory: "/data/nats".into(),
            users: "/data/nats/nats-users.conf".into(),
            port: 4222,
            monitoring_port: 8222,
        };
        insta::assert_snapshot!(plan.text());
    }
}
