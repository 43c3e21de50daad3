//! The callees of former attempts: a run ends only after them, and its result commits to theirs.

use std::collections::BTreeMap;
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use aod_domain::run::Event;
use aod_domain::subject::{self, Subject};
use tracing::{debug, warn};

use crate::attempt::Attempt;
use crate::calls::chain;

/// Events of a tree that are looked through: every run of the largest tree, ten times.
const TREE_EVENTS_MAX: usize = 100_000;

/// Between two looks at a callee that is ending.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Adds the callees that only former attempts made to `results`, after ending those that go on.
/// Whether the lease lasted.
pub(crate) async fn adopt(attempt: &Attempt, results: &mut BTreeMap<RunId, Digest>) -> bool {
    let lost = attempt.lease.lost();
    loop {
        let Some(children) = lost.run_until_cancelled(find(attempt)).await else {
            return false;
        };
        let Some(children) = children else {
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        };
        let mut is_complete = true;
        for (run, result) in children {
            match result {
                Some(hash) => drop(results.insert(run, hash)),
                None => {
                    is_complete = false;
                    let cancelled = attempt.shared.gateways.cancel(
                        &attempt.speaker,
                        run,
                        "its caller has ended",
                    );
                    if let Some(Err(problem)) = lost.run_until_cancelled(cancelled).await {
                        debug!(%run, code = problem.code, "a callee was not cancelled");
                    }
                }
            }
        }
        if is_complete {
            return true;
        }
        if lost
            .run_until_cancelled(tokio::time::sleep(LOOK_EVERY))
            .await
            .is_none()
        {
            return false;
        }
    }
}

/// The callees of the run, and the hash of the result of each that has ended.
async fn find(attempt: &Attempt) -> Option<BTreeMap<RunId, Option<Digest>>> {
    let run = &attempt.run;
    let stored = attempt
        .shared
        .runs
        .log()
        .read(
            &subject::tree(run.id),
            run.launched.sequence,
            TREE_EVENTS_MAX,
        )
        .await;
    let stored = stored
        .inspect_err(|error| warn!(error = %chain(error), "the callees cannot be read"))
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
