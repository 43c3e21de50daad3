//! Reruns: what is recorded of a run, asked for again, and results taken over.
//!
//! Images, schemas and bounds are those of the recorded tree, whatever was registered since.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use aod_domain::artifacts::{Named, Role, named_by};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::rerun::{self, RecordedTree, registration};
use aod_domain::run::{Anew, Ended, Event, Reuses, Run, Work};

use crate::catalogue::Registered;
use crate::context::Context;
use crate::gone;
use crate::http::error::{ApiError, ApiResult};
use crate::launch::Started;
use crate::reading;
use crate::routes::internal::latest_callee;
use crate::stopping::take_and_end;

/// Recorded trees that are kept at hand; one that has ended never changes.
const TREES_KEPT_MAX: usize = 16;

/// Reruns of reruns that are followed to where a capsule was used last.
const GENERATIONS_MAX: usize = 100;

/// Recorded trees, as reruns of them ask for them.
#[derive(Debug, Default)]
pub(crate) struct RecordedTrees(Mutex<VecDeque<(RunId, Arc<RecordedTree>)>>);

/// The run `id`, which can be repeated: it has ended, and is of a capsule.
pub(crate) async fn repeatable(context: &Context, id: RunId) -> ApiResult<Run> {
    let run = context.runs.load(id).await?;
    let run = run.ok_or_else(|| reading::unknown(id))?;
    if let Work::Build { name, .. } = &run.launched.event.work {
        let text = format!("the image of {name} is built again by registering it again");
        return Err(ApiError::malformed(text));
    }
    if run.ended().is_none() {
        let text = format!("{id} has not ended: wait for it, or cancel it first");
        return Err(ApiError::new(ErrorCode::RunNotEnded, text));
    }
    Ok(run)
}

/// What is started anew so that `from` is, in a rerun of `of`.
pub(crate) async fn way(context: &Context, of: RunId, from: RunId) -> ApiResult<Anew> {
    if of == from {
        return Ok(Anew::All);
    }
    let mut way = vec![from];
    let mut next = from;
    // As deep as calls may be nested.
    while next != of {
        let run = context.runs.load(next).await?;
        let parent = run.and_then(|run| run.launched.event.parent);
        let Some(parent) = parent else {
            let text = format!("no run {from} is recorded below {of}");
            return Err(ApiError::new(ErrorCode::UnknownRun, text));
        };
        next = parent.run;
        way.push(next);
    }
    way.reverse();
    Ok(Anew::Way(way))
}

/// What the call `key` of `caller` came to when it was recorded, if `caller` repeats a run and that made
/// the same call.
pub(crate) async fn recorded_callee(
    context: &Context,
    caller: &Run,
    key: Digest,
) -> ApiResult<Option<Run>> {
    let rerun = caller.launched.event.rerun.as_ref();
    match rerun.and_then(|rerun| rerun.of) {
        Some(of) => latest_callee(context, of, key).await,
        None => Ok(None),
    }
}

/// The capsule that `current` is now, as the tree that `caller` repeats used it; `recorded` is what the same
/// call came to there.
pub(crate) async fn as_recorded(
    context: &Context,
    caller: &Run,
    recorded: Option<&Run>,
    current: Registered,
) -> ApiResult<Registered> {
    let Some(rerun) = &caller.launched.event.rerun else {
        return Ok(current);
    };
    let name = &current.event.name;
    let same = recorded
        .and_then(|run| registration(&run.launched))
        .filter(|registered| registered.event.name == *name);
    if let Some(same) = same {
        return Ok(Arc::new(same));
    }
    let find = |tree: &RecordedTree| tree.capsules.get(name).cloned();
    let found = context
        .recorded_trees
        .find(context, rerun.tree, find)
        .await?;
    Ok(found.map_or(current, Arc::new))
}

/// What was called with `signature` in the tree that `caller` repeats, by whomever; for a call whose key is
/// not recorded, as below one that was called with something else.
pub(crate) async fn recorded_elsewhere(
    context: &Context,
    caller: &Run,
    signature: Digest,
) -> ApiResult<Option<Run>> {
    let Some(rerun) = &caller.launched.event.rerun else {
        return Ok(None);
    };
    let find = |tree: &RecordedTree| tree.calls.get(&signature).copied();
    match context
        .recorded_trees
        .find(context, rerun.tree, find)
        .await?
    {
        Some(id) => Ok(context.runs.load(id).await?),
        None => Ok(None),
    }
}

impl RecordedTrees {
    /// What `find` finds in the tree of `id`, or in those that it repeats.
    async fn find<T>(
        &self,
        context: &Context,
        id: RunId,
        find: impl Fn(&RecordedTree) -> Option<T>,
    ) -> ApiResult<Option<T>> {
        let mut next = Some(id);
        for _ in 0..GENERATIONS_MAX {
            let Some(id) = next else { break };
            let tree = self.get(context, id).await?;
            if let Some(found) = find(&tree) {
                return Ok(Some(found));
            }
            next = tree.repeats;
        }
        Ok(None)
    }

    async fn get(&self, context: &Context, id: RunId) -> ApiResult<Arc<RecordedTree>> {
        let known = self.lock().iter().find(|(known, _)| *known == id).cloned();
        if let Some((_, tree)) = known {
            return Ok(tree);
        }
        let family = reading::family(context, id).await?;
        let runs = family.values().map(|seen| &seen.run);
        let tree = Arc::new(RecordedTree::of(id, runs));
        let mut kept = self.lock();
        kept.push_back((id, Arc::clone(&tree)));
        if kept.len() > TREES_KEPT_MAX {
            kept.pop_front();
        }
        Ok(tree)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(RunId, Arc<RecordedTree>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a run that takes a recorded result over, unless that has been done: whichever gateway is asked, also
/// after one that died over it.
pub(crate) async fn take_over(context: &Context, started: Started) -> ApiResult<Started> {
    let Some(reuses) = started.run.launched.event.reuses else {
        return Ok(started);
    };
    if started.run.ended().is_some() {
        return Ok(started);
    }
    let Started { run, waiter } = started;
    let run = match take_over_result(context, &run, &reuses).await? {
        Some(ended) => ended,
        // Another gateway was faster: its end is waited for.
        None => run,
    };
    Ok(Started { run, waiter })
}

async fn take_over_result(context: &Context, run: &Run, reuses: &Reuses) -> ApiResult<Option<Run>> {
    let recorded = context.runs.load(reuses.run).await?;
    let ended = recorded.as_ref().and_then(Run::ended);
    let Some(ended) = ended.filter(|ended| ended.hash == reuses.hash) else {
        let text = format!("the result of {} is not the recorded one", reuses.run);
        return Err(ApiError::new(ErrorCode::Internal, text));
    };
    let what = format!("the result of {}", reuses.run);
    gone::renew(context, &what, results_of(&ended.event)).await?;
    let mut ended = ended.event.clone();
    if let Some(logs) = &ended.logs
        && gone::lost(context, logs.digest).await?.is_some()
    {
        ended.logs = None;
    }
    let end = |attempt| rerun::taken_over(attempt, &ended);
    take_and_end(context, run, end).await
}

/// Whether what `recorded` came to is all there, to be taken over.
pub(crate) async fn is_whole(context: &Context, recorded: &Run) -> ApiResult<bool> {
    let Some(ended) = recorded.ended() else {
        return Ok(false);
    };
    let what = format!("the result of {}", recorded.id);
    match gone::renew(context, &what, results_of(&ended.event)).await {
        Ok(()) => Ok(true),
        Err(error) if error.problem().code == ErrorCode::ArtifactCollected.as_str() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The output and the files of a result; its logs may be gone.
fn results_of(ended: &Ended) -> Vec<Named> {
    let mut named = named_by(&Event::Ended(Box::new(ended.clone())));
    named.retain(|named| named.role != Role::Logs);
    named
}
