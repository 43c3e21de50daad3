//! The state that all attempts of a node share: its ports, its capacity and disks (`Host`), its attempts, the other nodes, and
//! its clients of gateways and models.

pub(crate) mod attempts;
mod contracts;
pub(crate) mod disks;
pub(crate) mod images;
pub(crate) mod ledger;
mod lifetime;
pub(crate) mod other_nodes;

use std::sync::Arc;

use aod_archive::ArchivedLog;
use aod_domain::id::{IncarnationId, NodeId};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::Clock;
use aod_ports::container_runtime::ContainerRuntime;
use aod_ports::event_log::EventLog;
use aod_ports::gateways::GatewayTransport;
use aod_ports::log_stream::LogStream;
use aod_ports::network::Network;
use aod_ports::presence::Presence;
use aod_ports::secrets::SecretStore;
use aod_ports::work_queue::WorkQueue;
use aod_services::runs::Runs;
use tokio::sync::Notify;

use self::attempts::Attempts;
use self::contracts::Contracts;
use self::disks::Disks;
use self::images::LastUses;
use self::ledger::Ledger;
use self::lifetime::Lifetime;
use self::other_nodes::OtherNodes;
use crate::config::Config;
use crate::files::workdir::WorkDirectories;
use crate::gateways::client::GatewayClient;
use crate::models::keeping::Keeper;
use crate::models::shared::Models;

/// The ports that a node uses.
#[derive(Clone, Debug)]
pub struct Ports {
    pub queue: Arc<dyn WorkQueue>,
    pub logs: Arc<dyn LogStream>,
    pub presence: Arc<dyn Presence>,
    pub artifacts: Arc<dyn ArtifactStore>,
    /// The same artifacts for images, which a node may fetch from other nodes.
    pub images: Arc<dyn ArtifactStore>,
    pub runtime: Arc<dyn ContainerRuntime>,
    pub gateways: Arc<dyn GatewayTransport>,
    pub secrets: Arc<dyn SecretStore>,
    pub network: Arc<dyn Network>,
}

/// A node and its work.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) id: NodeId,
    pub(crate) incarnation: IncarnationId,
    pub(crate) ports: Ports,
    pub(crate) runs: Runs,
    pub(crate) gateways: Arc<GatewayClient>,
    pub(crate) models: Arc<Models>,
    pub(crate) contracts: Contracts,
    pub(crate) host: Host,
    pub(crate) attempts: Attempts,
    pub(crate) others: OtherNodes,
    pub(crate) lifetime: Lifetime,
}

/// The host of the node: capacity, directories, disks and images.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) directories: WorkDirectories,
    pub(crate) disks: Disks,
    pub(crate) images: LastUses,
    /// The engine has failed a call, or the disk is full: check the fitness for work.
    pub(crate) doubt: Notify,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        id: NodeId,
        ports: Ports,
        log: Arc<dyn EventLog>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let incarnation = IncarnationId::new(clock.fresh_uuid());
        let artifacts = Arc::clone(&ports.artifacts);
        let log = Arc::new(ArchivedLog::new(log, artifacts, Arc::clone(&clock)));
        let runs = Runs::new(log, clock, &format!("/node/{id}"));
        let gateways = GatewayClient::new(Arc::clone(&ports.presence), Arc::clone(&ports.gateways));
        let (settings, secrets) = (Arc::clone(&config.models), Arc::clone(&ports.secrets));
        let keeper = config
            .keep_model_contents
            .then(|| Keeper::new(Arc::clone(&ports.artifacts)));
        Arc::new(Self {
            host: Host::new(&config, &ports),
            models: Arc::new(Models::new(settings, secrets, runs.clone(), keeper)),
            others: OtherNodes::new(Arc::clone(&ports.presence), id),
            config,
            id,
            incarnation,
            ports,
            runs,
            gateways: Arc::new(gateways),
            contracts: Contracts::default(),
            attempts: Attempts::default(),
            lifetime: Lifetime::default(),
        })
    }
}

impl Host {
    fn new(config: &Config, ports: &Ports) -> Self {
        let cpu_millis = config.equipment.cpu_millis;
        let cache = ports.artifacts.spool_directory().to_owned();
        let directories_written = [config.data.clone(), cache];
        Self {
            ledger: Ledger::new(config.capacity, cpu_millis, config.devices.clone()),
            directories: WorkDirectories::new(&config.data),
            disks: Disks::new(directories_written, config.disk_reserve),
            images: LastUses::default(),
            doubt: Notify::new(),
        }
    }
}
