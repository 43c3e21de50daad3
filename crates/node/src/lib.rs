//! The agent of a host: pulls launches when it has a free slot, prepares `/io`, runs, watches,
//! limits and collects; serves each run's private channel.
//!
//! A node decides nothing about other runs, and believes nothing that a capsule says about itself.
//!
//! ```text
//! agent      the loops: pull, announce, operators, cancellations, reconcile
//! queues     which queues beyond those of its labels it takes from
//! neighbours whom a launch is better off with, and what others hand over
//! attempt    one attempt: lease, work, result
//!   capsule_run   prepare → start → watch → collect
//!   build_run     builds an image
//! channel    HTTP for the capsule, over its own socket      calls   what it asks of others
//! models     the way to models: keys, metering, budgets
//! stage, tree   files out of a capsule's hands              deliver files into them
//! secrets    what the operator keeps for capsules           egress  the way to hosts outside
//! ```

mod agent;
mod attempt;
mod build_run;
mod calls;
mod capsule_run;
mod channel;
mod children;
mod collect;
mod config;
mod deliver;
mod devices;
mod disk;
mod egress;
mod environment;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gateway_client;
mod gateway_http;
mod grants;
mod heartbeat;
mod identity;
mod images;
mod lease;
mod ledger;
mod logs;
mod models;
mod neighbours;
mod notes;
mod payload;
mod prepare;
mod queues;
mod quota;
mod reconcile;
mod redaction;
mod refusal;
mod run_clock;
mod secrets;
mod shared;
mod stage;
mod tree;
mod watch;
mod workdir;

use std::sync::Arc;

use aod_archive::ArchivedLog;
use aod_domain::id::{IncarnationId, NodeId};
use aod_ports::clock::Clock;
use aod_ports::event_log::EventLog;
use aod_ports::presence::Member;
use aod_ports::program::spawn;
use aod_ports::runs::Runs;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::config::{
    Config, DISK_LOOK_DEFAULT, GRACE_DEFAULT, IMAGE_KEEP_DEFAULT, LEASE_DEFAULT,
    LOG_BYTES_MAX_DEFAULT,
};
pub use self::egress::SystemNetwork;
pub use self::gateway_http::HttpGateways;
pub use self::identity::{IdentityError, load_or_draw};
pub use self::models::{CONTENT_BYTES_MAX, MalformedModels, ModelSettings};
pub use self::redaction::REDACTED_BYTES_MIN;
pub use self::secrets::{CommandSecrets, DirectorySecrets, MalformedCommand};
pub use self::shared::Ports;
use crate::agent::Fitness;
use crate::gateway_client::GatewayClient;
use crate::models::{Keeper, Models};
use crate::shared::Shared;
use crate::workdir::WorkDirectories;

/// The gate's binary, static, to be put on the host and bound into every container.
pub const GATE_BINARY: &[u8] = include_bytes!(env!("AOD_GATE_BINARY"));

/// How long a stop waits for containers to be gone: what an engine takes to kill a few dozen.
pub const STOP_PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The operator mends the directory.
    #[error("the data directory {path} cannot be used")]
    Data {
        path: std::path::PathBuf,
        source: std::io::Error,
    },
}

/// A node that runs.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    loops: JoinHandle<()>,
}

impl Node {
    /// Clears away what an earlier start of `id` left, and begins to take work.
    pub async fn start(
        config: Config,
        id: NodeId,
        ports: Ports,
        log: Arc<dyn EventLog>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let incarnation = IncarnationId::new(clock.fresh_uuid());
        let artifacts = Arc::clone(&ports.artifacts);
        let log = Arc::new(ArchivedLog::new(log, artifacts, Arc::clone(&clock)));
        let runs = Runs::new(log, clock, &format!("/node/{id}"));
        let gateways = GatewayClient::new(Arc::clone(&ports.presence), Arc::clone(&ports.gateways));
        let data = config.data.clone();
        let directories = WorkDirectories::new(&data);
        let (settings, secrets) = (Arc::clone(&config.models), Arc::clone(&ports.secrets));
        let keeper = config
            .keep_model_contents
            .then(|| Keeper::new(Arc::clone(&ports.artifacts)));
        let models = Models::new(settings, secrets, runs.clone(), keeper);
        let shared = Shared::new(
            config,
            id,
            incarnation,
            ports,
            runs,
            Arc::new(gateways),
            Arc::new(models),
            directories,
            CancellationToken::new(),
        );
        reconcile::recover(&shared).await;
        shared
            .directories
            .clear()
            .map_err(|source| StartError::Data { path: data, source })?;
        let loops = spawn(agent::run(Arc::clone(&shared)));
        Ok(Self { shared, loops })
    }

    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// The most containers that were alive at one time.
    pub fn containers_peak(&self) -> usize {
        self.shared.ledger.containers_peak()
    }

    /// The most memory that was reserved at one time, in bytes.
    pub fn memory_peak_bytes(&self) -> u64 {
        self.shared.ledger.memory_peak_bytes()
    }

    /// Takes no more work, and returns once the runs that are here have ended.
    pub async fn drain(&self) {
        self.shared.ledger.set_draining(true);
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Stops at once: kills what runs, gives its launches back and clears away, all within
    /// [`STOP_PATIENCE`]; the rest is left to the gates and the next start.
    pub async fn stop(self) {
        self.shared.stop.cancel();
        let member = Member::Node(agent::member(&self.shared, Fitness::stopped()));
        let left = self.shared.ports.presence.leave(&member);
        let cleared = async {
            self.shared.tasks.close();
            self.shared.tasks.wait().await;
        };
        let all = futures::future::join3(left, cleared, self.loops);
        if tokio::time::timeout(STOP_PATIENCE, all).await.is_err() {
            tracing::warn!("stopped before everything was cleared away");
        }
    }
}
