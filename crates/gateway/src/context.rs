//! What all requests of a gateway share.

use std::sync::Arc;
use std::time::Duration;

use aod_archive::ArchivedLog;
use aod_domain::id::GatewayId;
use aod_domain::run::Holder;
use aod_ports::presence::Member;
use aod_ports::runs::Runs;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admitter;
use crate::catalogue::Capsules;
use crate::config::{Config, Ports};
use crate::disk_room::DiskRoom;
use crate::http::error::ApiResult;
use crate::log_room::LogRoom;
use crate::metrics::Metrics;
use crate::queues::Queues;
use crate::read_model::ReadModel;
use crate::rerun::RecordedTrees;
use crate::tokens::TokenBook;
use crate::waiters::Waiters;

pub(crate) type Shared = Arc<Context>;

/// A gateway as its routes and its background tasks see it.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) ports: Ports,
    pub(crate) gateway: GatewayId,
    /// Where nodes reach it.
    pub(crate) url: String,
    pub(crate) runs: Runs,
    /// The log of `runs` and `ports`, as what archives it needs it.
    pub(crate) archived_log: ArchivedLog,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) capsules: Capsules,
    pub(crate) admitter: Admitter,
    pub(crate) tokens: TokenBook,
    pub(crate) queues: Queues,
    pub(crate) recorded_trees: RecordedTrees,
    pub(crate) read_model: ReadModel,
    pub(crate) metrics: Metrics,
    pub(crate) log_room: LogRoom,
    pub(crate) disk_room: DiskRoom,
    /// Held by whoever collects garbage.
    pub(crate) collecting: tokio::sync::Mutex<()>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Context {
    /// The longest that one request may wait.
    pub(crate) fn wait_max(&self) -> Duration {
        Duration::from_secs(u64::from(self.config.wait_seconds_max))
    }

    /// This gateway as the holder of a lease: only to end a run that nobody else will end.
    pub(crate) fn holder(&self) -> Holder {
        Holder::Gateway {
            gateway: self.gateway,
        }
    }

    /// Whether no other gateway of `members` is there longer than this one: their ids say when they began.
    pub(crate) fn is_first(&self, members: &[Member]) -> bool {
        let gateways = members.iter().filter_map(|member| match member {
            Member::Gateway(gateway) => Some(gateway.gateway),
            Member::Node(_) => None,
        });
        gateways.min().is_none_or(|first| first >= self.gateway)
    }

    /// Says why no new root may start now.
    pub(crate) async fn admit_root(&self) -> ApiResult<()> {
        self.disk_room.admit()?;
        self.log_room.admit(self.runs.log().as_ref()).await
    }
}
