//! The open requests of a capsule: the run waits while it has one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::call::CallState;
use crate::counting::Counted;

/// Counts the requests of the capsule of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// The number of requests that wait for a call.
    open: watch::Sender<usize>,
    /// The number of requests of any kind that the channel serves now.
    served: watch::Sender<usize>,
}

impl Activity {
    /// The number of open requests of the capsule.
    pub(crate) fn waiting(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// The number of requests of the capsule that the channel serves. Each change is a sign of life.
    pub(crate) fn served(&self) -> watch::Receiver<usize> {
        self.served.subscribe()
    }

    /// Counts a request of the capsule as served, until its answer begins.
    pub(crate) fn serve(&self) -> Counted {
        Counted::begin(&self.served)
    }

    /// Marks a request of the capsule as open.
    pub(crate) fn wait_for(&self, call: &Arc<CallState>) -> Waiting {
        call.is_abandoned.store(false, Ordering::Relaxed);
        Waiting {
            _open: Counted::begin(&self.open),
            call: Arc::clone(call),
            is_delivered: false,
        }
    }
}

/// An open request of the capsule. While one is open, the run holds no slot.
pub(crate) struct Waiting {
    _open: Counted,
    call: Arc<CallState>,
    is_delivered: bool,
}

impl Waiting {
    pub(crate) fn delivered(&mut self) {
        self.is_delivered = true;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_delivered {
            self.call.is_abandoned.store(true, Ordering::Relaxed);
        }
    }
}
