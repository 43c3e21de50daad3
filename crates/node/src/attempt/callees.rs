//! The callees of earlier attempts: a run ends only after its callees, and its result commits to their results.

use std::collections::BTreeMap;
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use aod_domain::run::Event;
use aod_domain::subject::{self, Subject};
use tracing::{debug, warn};

use crate::attempt::Attempt;
use aod_services::error::chain;

/// Maximum number of events of a tree that the node reads: ten for each run of the largest tree.
const TREE_EVENTS_MAX: usize = 100_000;

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
    let Some(children) = find(attempt).await else {
        return false;
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

/// The callees of the run; for each ended one the hash of its result.
async fn find(attempt: &Attempt) -> Option<BTreeMap<RunId, Option<Digest>>> {
    let run = &attempt.run;
    let (log, tree) = (attempt.shared.runs.log(), subject::tree(run.id));
    let stored = log
        .read(&tree, run.launched.sequence, TREE_EVENTS_MAX)
        .await;
    let stored = stored
        .inspect_err(|error| warn!(error = %chain(error), "cannot read the callees; retrying"))
        .ok()?;
    let mut children = BTreeMap::new();
    for event in stored
        .iter()
        .filter(|event| Subject::is_state(&event.subject))
    {
        let Some(id) = Subject::run_of(&event.subject) else {
            continue;
        };
        let Ok(recorded) = event.decode::<Event>() else {
            continue;
        };
        let parent = recorded
            .event
            .launched()
            .and_then(|launched| launched.parent.as_ref());
        if parent.is_some_and(|parent| parent.run == run.id) {
            children.insert(id, None);
        }
        if let Event::Ended(_) = recorded.event {
            children
                .entry(id)
                .and_modify(|result| *result = Some(recorded.hash));
        }
    }
    Some(children)
}
