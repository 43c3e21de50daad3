//! Rejects new trees while the rest of the log is reserved for running trees.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aod_domain::error_code::ErrorCode;
use aod_domain::event::EVENT_SIZE_BYTES_MAX;
use aod_ports::event_log::{EventLog, Fill};

use crate::error::{Error, Result};
use aod_services::error::chain;

/// Fill of the log from which on the gateway rejects new roots.
const FILL_PERCENT_MAX: u64 = 90;

/// Maximum size of the launch of a root: one event.
const ROOT_SIZE_BYTES_MAX: u64 = EVENT_SIZE_BYTES_MAX as u64;

/// Whether the log has space for new roots, as known to one gateway.
///
/// The gateway checks the log periodically, and also each time its own roots may have filled a hundredth of the log,
/// so that a burst cannot fill the reserved part.
#[derive(Debug, Default)]
pub(crate) struct LogRoom {
    is_full: AtomicBool,
    /// A hundredth of the log, in bytes; 0 before the first check.
    step: AtomicU64,
    /// Maximum size of the roots admitted since the last check, in bytes.
    admitted: AtomicU64,
}

impl LogRoom {
    /// Admits one more root, or returns the reason for rejecting it.
    pub(crate) async fn admit(&self, log: &dyn EventLog) -> Result<()> {
        let before = self
            .admitted
            .fetch_add(ROOT_SIZE_BYTES_MAX, Ordering::Relaxed);
        if before + ROOT_SIZE_BYTES_MAX > self.step.load(Ordering::Relaxed) {
            self.check(log).await;
        }
        if self.is_full.load(Ordering::Relaxed) {
            let detail =
                "the event log is nearly full: running trees can end, no new tree can start";
            return Err(Error::new(ErrorCode::LogFull, detail));
        }
        Ok(())
    }

    /// Checks the log. If the log does not answer, the previous result applies.
    pub(crate) async fn check(&self, log: &dyn EventLog) {
        let fill = match log.fill().await {
            Ok(fill) => fill,
            Err(error) => {
                tracing::debug!(error = chain(&error), "cannot read the fill of the log");
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
            tracing::warn!(
                is_full,
                bytes,
                bytes_max,
                "the fill of the log crossed the limit for new trees"
            );
        }
    }
}

/// A log without a limit is never full.
fn is_nearly_full(fill: &Fill) -> bool {
    fill.bytes_max > 0 && fill.bytes >= fill.bytes_max / 100 * FILL_PERCENT_MAX
}

fn step(fill: &Fill) -> u64 {
    match fill.bytes_max {
        0 => u64::MAX,
        bytes_max => bytes_max / 100,
    }
}
