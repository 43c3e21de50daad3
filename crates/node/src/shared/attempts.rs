//! The attempts of this process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use aod_domain::id::RunId;
use tokio_util::sync::CancellationToken;

use crate::lock::lock;

/// The attempts that may still have a container, including those in clean-up. Each token is cancelled when the run of
/// its attempt is cancelled.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<BTreeMap<(RunId, u32), CancellationToken>>);

impl Attempts {
    /// Registers an attempt; its run's cancellation cancels the token.
    pub(crate) fn begin(&self, run: RunId, attempt: u32) -> CancellationToken {
        let token = CancellationToken::new();
        lock(&self.0).insert((run, attempt), token.clone());
        token
    }

    /// Unregisters an attempt once nothing of it is left on this host.
    pub(crate) fn forget(&self, run: RunId, attempt: u32) {
        lock(&self.0).remove(&(run, attempt));
    }

    /// Cancels the attempts of `run`, if any.
    pub(crate) fn cancel(&self, run: RunId) {
        lock(&self.0)
            .iter()
            .filter(|((known, _), _)| *known == run)
            .for_each(|(_, token)| token.cancel());
    }

    /// Whether this process handles the container of an attempt.
    pub(crate) fn has(&self, run: RunId, attempt: u32) -> bool {
        lock(&self.0).contains_key(&(run, attempt))
    }

    /// The attempts whose containers this process handles.
    pub(crate) fn all(&self) -> BTreeSet<(RunId, u32)> {
        lock(&self.0).keys().copied().collect()
    }
}
