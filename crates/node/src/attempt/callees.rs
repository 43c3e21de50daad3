//! The callees of earlier attempts: a run ends only after its callees, and its result commits to their results.

use std::collections::BTreeMap;
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use tracing::{debug, warn};

use crate::attempt::Attempt;
use aod_services::error::chain;

/// Pause between two checks of a callee that is ending.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Cancels running callees of earlier attempts, waits for their end, and adds all results to `results`. False if the
/// attempt loses its lease.
pub(crate) async fn adopt(attempt: &Attempt, results: &mut BTreeMap<RunId, Digest>) -> bool {
    let lost = attempt.lease.lost();
    let adopted = async {
        while !try_adopt(attempt, results).await {
            tokio::time::sleep(CHECK_EVERY).await;
        }
    };
    lost.run_until_cancelled(adopted).await.is_some()
}

/// Whether all callees have ended; cancels the others.
async fn try_adopt(attempt: &Attempt, results: &mut BTreeMap<RunId, Digest>) -> bool {
    let children = match attempt.shared.runs.callees(&attempt.run).await {
        Ok(children) => children,
        Err(error) => {
            warn!(error = %chain(&error), "cannot read the callees; retrying");
            return false;
        }
    };
    let mut is_complete = true;
    for (run, result) in children {
        if let Some(hash) = result {
            results.insert(run, hash);
            continue;
        }
        is_complete = false;
        let cancelled = attempt.speaker.cancel(run, "its caller has ended").await;
        if let Err(problem) = cancelled {
            debug!(%run, code = problem.code, "a callee was not cancelled");
        }
    }
    is_complete
}
