//! What all requests of a gateway share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::id::GatewayId;
use aod_domain::run::Holder;
use aod_ports::runs::Runs;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::catalogue::Capsules;
use crate::config::{Config, Ports};
use crate::http::error::{ApiError, ApiResult};
use crate::metrics::Metrics;
use crate::read_model::ReadModel;
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
    pub(crate) waiters: Waiters,
    pub(crate) capsules: Capsules,
    pub(crate) read_model: ReadModel,
    pub(crate) metrics: Metrics,
    pub(crate) is_log_full: AtomicBool,
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

    /// New trees are refused while the rest of the log is kept for those that run.
    pub(crate) fn check_room_for_roots(&self) -> ApiResult<()> {
        if self.is_log_full.load(Ordering::Relaxed) {
            let detail = "the event log is nearly full: what runs may end, nothing new may start";
            return Err(ApiError::new(ErrorCode::LogFull, detail));
        }
        Ok(())
    }
}
