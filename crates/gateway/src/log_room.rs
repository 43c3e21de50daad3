//! New trees are refused while the rest of the log is kept for those that run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aod_domain::error_code::ErrorCode;
use aod_domain::event::EVENT_SIZE_BYTES_MAX;
use aod_ports::event_log::{EventLog, Fill};

use crate::http::error::{ApiError, ApiResult, chain};

/// New roots are refused from this fill on.
const FILL_PERCENT_MAX: u64 = 90;

/// What the launch of a root takes at most: one event.
const ROOT_SIZE_BYTES_MAX: u64 = EVENT_SIZE_BYTES_MAX as u64;

/// Whether the log takes new roots, as one gateway knows it.
///
/// It looks at the log every so often, and in between after each hundredth of the log that its own
/// roots may have taken, so that a burst cannot fill what is kept.
#[derive(Debug, Default)]
pub(crate) struct LogRoom {
    is_full: AtomicBool,
    /// A hundredth of the log, in bytes; 0 before the first look.
    step: AtomicU64,
    /// What roots admitted since the last look may have taken, in bytes.
    admitted: AtomicU64,
}

impl LogRoom {
    /// Admits one more root, or says why not.
    pub(crate) async fn admit(&self, log: &dyn EventLog) -> ApiResult<()> {
        let before = self
            .admitted
            .fetch_add(ROOT_SIZE_BYTES_MAX, Ordering::Relaxed);
        if before + ROOT_SIZE_BYTES_MAX > self.step.load(Ordering::Relaxed) {
            self.look(log).await;
        }
        if self.is_full.load(Ordering::Relaxed) {
            let detail = "the event log is nearly full: what runs may end, nothing new may start";
            return Err(ApiError::new(ErrorCode::LogFull, detail));
        }
        Ok(())
    }

    /// Looks at the log. While it cannot be looked at, the last look counts.
    pub(crate) async fn look(&self, log: &dyn EventLog) {
        let fill = match log.fill().await {
            Ok(fill) => fill,
            Err(error) => {
                tracing::debug!(error = chain(&error), "the log's fill is not known now");
                return;
            }
        };
        self.admitted.store(0, Ordering::Relaxed);
        self.step.store(step(&fill), Ordering::Relaxed);
        let is_full = is_nearly_full(&fill);
        if self.is_full.swap(is_full, Ordering::Relaxed) != is_full {
            let Fill {
                bytes, bytes_max, ..
            } = fill;
            tracing::warn!(is_full, bytes, bytes_max, "the log's fill changed");
        }
    }
}

/// A log without a bound is never full.
fn is_nearly_full(fill: &Fill) -> bool {
    fill.bytes_max > 0 && fill.bytes >= fill.bytes_max / 100 * FILL_PERCENT_MAX
}

fn step(fill: &Fill) -> u64 {
    match fill.bytes_max {
        0 => u64::MAX,
        bytes_max => bytes_max / 100,
    }
}
