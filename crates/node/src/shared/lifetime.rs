//! The end of a node: its stop, and the end of its time to drain.

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The end of a node's work.
#[derive(Debug, Default)]
pub(crate) struct Lifetime {
    /// Attempts and their clean-up.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// When the node returns its launches to the queue, if an operator has set a time.
    pub(crate) drained_at: watch::Sender<Option<Timestamp>>,
    /// Whether that time has come.
    pub(crate) is_drained: watch::Sender<bool>,
}

impl Lifetime {
    /// Returns when attempts must end so that another node continues: this node stops, or its time to drain is over.
    pub(crate) async fn must_return(&self) {
        let mut is_drained = self.is_drained.subscribe();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => (),
            _ = is_drained.wait_for(|is_drained| *is_drained) => (),
        }
    }

    /// Takes no further tasks; returns once all have ended.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
