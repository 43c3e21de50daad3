//! State that all requests of a gateway share.

use std::sync::Arc;
use std::time::Duration;

use aod_archive::ArchivedLog;
use aod_domain::id::GatewayId;
use aod_domain::run::Holder;
use aod_ports::presence::Member;
use aod_services::runs::Runs;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admitter;
use crate::background::disk_room::DiskRoom;
use crate::background::log_room::LogRoom;
use crate::background::queues::Queues;
use crate::capsules::catalogue::Capsules;
use crate::config::{Config, Ports};
use crate::error::Result;
use crate::metrics::Metrics;
use crate::read_model::ReadModel;
use crate::runs::rerun::RecordedTrees;
use crate::runs::result_waiters::ResultWaiters;
use crate::tokens::TokenBook;

pub(crate) type Shared = Arc<Context>;

/// State of a gateway for its routes and background tasks.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) ports: Ports,
    pub(crate) gateway: GatewayId,
    /// URL at which nodes reach this gateway.
    pub(crate) url: String,
    pub(crate) runs: Runs,
    /// The log of `runs` and `ports`, for the archiver.
    pub(crate) archived_log: ArchivedLog,
    pub(crate) waiters: Arc<ResultWaiters>,
    pub(crate) capsules: Capsules,
    pub(crate) admitter: Admitter,
    pub(crate) tokens: TokenBook,
    pub(crate) queues: Queues,
    pub(crate) recorded_trees: RecordedTrees,
    pub(crate) read_model: ReadModel,
    pub(crate) metrics: Metrics,
    pub(crate) log_room: LogRoom,
    pub(crate) disk_room: DiskRoom,
    /// Held during a garbage collection.
    pub(crate) garbage_collection: tokio::sync::Mutex<()>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Context {
    /// Maximum time that one request waits.
    pub(crate) fn wait_max(&self) -> Duration {
        Duration::from_secs(u64::from(self.config.wait_seconds_max))
    }

    /// This gateway as the holder of a lease: only to end a run that no node ends.
    pub(crate) fn holder(&self) -> Holder {
        Holder::Gateway {
            gateway: self.gateway,
        }
    }

    /// Whether this gateway has been running longest of all gateways in `members`: ids contain the time of the start.
    pub(crate) fn is_first(&self, members: &[Member]) -> bool {
        let gateways = members.iter().filter_map(|member| match member {
            Member::Gateway(gateway) => Some(gateway.gateway),
            Member::Node(_) => None,
        });
        gateways.min().is_none_or(|first| first >= self.gateway)
    }

    /// Rejects a new root if the log or a disk is nearly full.
    pub(crate) async fn admit_root(&self) -> Result<()> {
        self.disk_room.admit()?;
        self.log_room.admit(self.runs.log().as_ref()).await
    }
}
