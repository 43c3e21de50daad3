//! The agent of a host: pulls launches while it has a free slot, prepares `/io`, runs, watches and limits capsules,
//! collects their outputs, and serves each run's private channel.
//!
//! A node decides nothing about other runs, and trusts nothing that a capsule reports about itself.
//!
//! Each folder has one purpose, which its first lines describe; start with `agent` and `attempt`.
//!
//! ```text
//! agent      the loops: pull, announce, hand over, operators, reconcile
//! attempt    one attempt of a run: lease, watch, result
//! work       the kinds of work: run a capsule, build an image
//! channel    HTTP for a capsule, on its own socket
//!   calls      its calls of other capsules                gateways  requests to the gateways
//!   models     its calls of models: keys, budgets         egress    its connections to external hosts
//! files      files for a capsule and from it             secrets   secrets for a capsule, and their redaction
//! record     logs and notes of an attempt                shared    the state that all attempts share
//! ```

mod agent;
mod attempt;
mod calls;
mod channel;
mod config;
mod counting;
mod egress;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gateways;
mod identity;
mod lock;
mod models;
mod problem;
mod record;
mod secrets;
mod shared;
mod work;

use std::sync::Arc;

use aod_domain::id::NodeId;
use aod_ports::clock::Clock;
use aod_ports::event_log::EventLog;
use aod_ports::presence::Member;
use aod_services::program::spawn;
use thiserror::Error;
use tokio::task::JoinHandle;

pub use self::config::{
    Config, DISK_LOOK_DEFAULT, GRACE_DEFAULT, IMAGE_KEEP_DEFAULT, LEASE_DEFAULT,
    LOG_BYTES_MAX_DEFAULT,
};
pub use self::egress::SystemNetwork;
pub use self::files::descent::removal::remove_tree;
pub use self::gateways::http::HttpGateways;
pub use self::identity::{IdentityError, Origin, load_or_draw, origin};
pub use self::models::{CONTENT_BYTES_MAX, MalformedModels, ModelSettings};
pub use self::secrets::redaction::REDACTED_BYTES_MIN;
pub use self::secrets::{CommandSecrets, DirectorySecrets, MalformedCommand};
pub use self::shared::Ports;
use crate::agent::fitness::Fitness;
use crate::shared::Shared;

/// The gate's static binary. The node writes it to the host and mounts it into every container.
pub const GATE_BINARY: &[u8] = include_bytes!(env!("AOD_GATE_BINARY"));

/// How long a stop waits for the removal of containers: the time in which an engine kills a few dozen.
pub const STOP_PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Fixed by the operator.
    #[error("the node cannot use the data directory {path}")]
    Data {
        path: std::path::PathBuf,
        source: std::io::Error,
    },
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    loops: JoinHandle<()>,
}

impl Node {
    /// Removes the leftovers of an earlier start of `id`, and begins to take work.
    pub async fn start(
        config: Config,
        id: NodeId,
        ports: Ports,
        log: Arc<dyn EventLog>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let shared = Shared::new(config, id, ports, log, clock);
        agent::reconcile::recover(&shared).await;
        let path = shared.config.data.clone();
        let cleared = shared.host.directories.clear();
        cleared.map_err(|source| StartError::Data { path, source })?;
        let loops = spawn(agent::run(Arc::clone(&shared)));
        Ok(Self { shared, loops })
    }

    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// The maximum number of containers that were alive concurrently.
    pub fn containers_peak(&self) -> usize {
        self.shared.host.ledger.containers_peak()
    }

    /// The maximum memory that was reserved concurrently, in bytes.
    pub fn memory_peak_bytes(&self) -> u64 {
        self.shared.host.ledger.memory_peak_bytes()
    }

    /// Takes no more work, and returns once the runs of this node have ended.
    pub async fn drain(&self) {
        self.shared.host.ledger.set_draining(true);
        self.shared.lifetime.ended().await;
    }

    /// Stops immediately: kills running capsules, returns their launches to the queue and removes containers, all
    /// within [`STOP_PATIENCE`]. The gates and the next start do the rest.
    pub async fn stop(self) {
        self.shared.lifetime.stop.cancel();
        let member = Member::Node(agent::announce::member(&self.shared, Fitness::stopped()));
        let left = self.shared.ports.presence.leave(&member);
        let cleared = self.shared.lifetime.ended();
        let all = futures::future::join3(left, cleared, self.loops);
        if tokio::time::timeout(STOP_PATIENCE, all).await.is_err() {
            tracing::warn!(
                "the node stopped before it removed all containers; the next start removes them"
            );
        }
    }
}
