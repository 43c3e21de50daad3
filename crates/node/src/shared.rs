//! What all attempts of a node share.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use aod_domain::contract::Contract;
use aod_domain::digest::Digest;
use aod_domain::id::{IncarnationId, NodeId, RunId};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::ContainerRuntime;
use aod_ports::gateways::GatewayTransport;
use aod_ports::log_stream::LogStream;
use aod_ports::network::Network;
use aod_ports::presence::Presence;
use aod_ports::runs::Runs;
use aod_ports::secrets::SecretStore;
use aod_ports::work_queue::WorkQueue;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::disk::Disks;
use crate::gateway_client::GatewayClient;
use crate::images::LastUses;
use crate::ledger::Ledger;
use crate::models::Models;
use crate::neighbours::Neighbours;
use crate::queues::Queues;
use crate::refusal::RefusedRuns;
use crate::workdir::WorkDirectories;

/// Compiled schemas kept in memory; a host works with few capsules at a time.
const CONTRACTS_MAX: usize = 256;

/// Everything outside that a node works with.
#[derive(Clone, Debug)]
pub struct Ports {
    pub queue: Arc<dyn WorkQueue>,
    pub logs: Arc<dyn LogStream>,
    pub presence: Arc<dyn Presence>,
    pub artifacts: Arc<dyn ArtifactStore>,
    pub runtime: Arc<dyn ContainerRuntime>,
    pub gateways: Arc<dyn GatewayTransport>,
    pub secrets: Arc<dyn SecretStore>,
    pub network: Arc<dyn Network>,
}

/// A node and what it is busy with.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) id: NodeId,
    pub(crate) incarnation: IncarnationId,
    pub(crate) ports: Ports,
    pub(crate) runs: Runs,
    pub(crate) gateways: Arc<GatewayClient>,
    pub(crate) models: Arc<Models>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) directories: WorkDirectories,
    pub(crate) disks: Disks,
    /// Attempts and what is left to clear away after them.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// When what runs is to be handed back, if an operator has set a time.
    pub(crate) drained_at: watch::Sender<Option<Timestamp>>,
    pub(crate) image_uses: LastUses,
    /// That time has come.
    pub(crate) is_drained: watch::Sender<bool>,
    /// The engine has failed a call, or the disk is full: worth a look whether work can be taken.
    pub(crate) engine_doubt: Notify,
    pub(crate) queues: Queues,
    pub(crate) neighbours: Neighbours,
    pub(crate) refused: RefusedRuns,
    contracts: Mutex<HashMap<Digest, Contract>>,
    busy: Mutex<Busy>,
}

/// The attempts of this process.
#[derive(Debug, Default)]
struct Busy {
    /// Attempts that may still have a container, those being cleared away included.
    containers: BTreeSet<(RunId, u32)>,
    /// How to tell a live attempt that its run is to be cancelled.
    cancels: BTreeMap<(RunId, u32), CancellationToken>,
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "called once, by name")]
    pub(crate) fn new(
        config: Config,
        id: NodeId,
        incarnation: IncarnationId,
        ports: Ports,
        runs: Runs,
        gateways: Arc<GatewayClient>,
        models: Arc<Models>,
        directories: WorkDirectories,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let cpu_millis = config.equipment.cpu_millis;
        let ledger = Ledger::new(config.capacity, cpu_millis, config.devices.clone());
        let cache = ports.artifacts.spool_directory().to_owned();
        let directories_written = [config.data.clone(), cache];
        Arc::new(Self {
            disks: Disks::new(directories_written, config.disk_reserve),
            config,
            id,
            incarnation,
            ports,
            runs,
            gateways,
            models,
            ledger,
            directories,
            tasks: TaskTracker::new(),
            stop,
            image_uses: LastUses::default(),
            drained_at: watch::Sender::new(None),
            is_drained: watch::Sender::new(false),
            engine_doubt: Notify::new(),
            queues: Queues::default(),
            neighbours: Neighbours::default(),
            refused: RefusedRuns::default(),
            contracts: Mutex::default(),
            busy: Mutex::default(),
        })
    }

    /// Returns when attempts must end for another node to go on: this one is being stopped, or its
    /// time to drain is over.
    pub(crate) async fn must_hand_back(&self) {
        let mut is_drained = self.is_drained.subscribe();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => (),
            _ = is_drained.wait_for(|is_drained| *is_drained) => (),
        }
    }

    /// Takes note of an attempt; the token is cancelled when its run is to be.
    pub(crate) fn begin(&self, run: RunId, attempt: u32) -> CancellationToken {
        let token = CancellationToken::new();
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.containers.insert((run, attempt));
        busy.cancels.insert((run, attempt), token.clone());
        token
    }

    /// Nothing of the attempt is left on this host.
    pub(crate) fn forget(&self, run: RunId, attempt: u32) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.containers.remove(&(run, attempt));
        busy.cancels.remove(&(run, attempt));
    }

    /// Tells the attempts of `run`, if there are any, that it is to be cancelled.
    pub(crate) fn cancel(&self, run: RunId) {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.cancels
            .iter()
            .filter(|((busy, _), _)| *busy == run)
            .for_each(|(_, token)| token.cancel());
    }

    /// The attempts whose containers are this process's business.
    pub(crate) fn mine(&self) -> BTreeSet<(RunId, u32)> {
        self.busy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .containers
            .clone()
    }

    pub(crate) fn known_contract(&self, schema: Digest) -> Option<Contract> {
        self.contracts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&schema)
            .cloned()
    }

    pub(crate) fn remember_contract(&self, schema: Digest, contract: Contract) {
        let mut contracts = self
            .contracts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if contracts.len() >= CONTRACTS_MAX {
            contracts.clear();
        }
        contracts.insert(schema, contract);
    }
}
