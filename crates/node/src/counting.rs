//! Counts open connections and requests.

use tokio::sync::watch;

/// Counts one from its begin until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(watch::Sender<usize>);

impl Counted {
    pub(crate) fn begin(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
