//! Reruns: repeats a recorded request, and reuses recorded results.
//!
//! A rerun uses the images, schemas and limits of the recorded tree, even if capsules were registered since.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use aod_domain::artifacts::{Named, Role, named_by_end};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::rerun::{self, RecordedTree, registration};
use aod_domain::run::{Ended, Recompute, Reuses, Run, Work};

use crate::capsules::catalogue::Registered;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::files::deleted_artifacts;
use crate::reading;
use crate::runs::calls::latest_callee;
use crate::runs::launch::Started;
use crate::runs::stopping::take_and_end;

/// Maximum number of recorded trees in memory; an ended tree never changes.
const TREES_KEPT_MAX: usize = 16;

/// Maximum length of a chain of reruns that is followed to the last use of a capsule.
const GENERATIONS_MAX: usize = 100;

/// Recorded trees that reruns have used recently.
#[derive(Debug, Default)]
pub(crate) struct RecordedTrees(Mutex<VecDeque<(RunId, Arc<RecordedTree>)>>);

/// The run `id`, if it can be rerun: it has ended, and is not a build.
pub(crate) async fn repeatable(context: &Context, id: RunId) -> Result<Run> {
    let run = context.runs.load(id).await?;
    let run = run.ok_or_else(|| reading::unknown(id))?;
    if let Work::Build { name, .. } = &run.launched.event.work {
        let text =
            format!("{id} is a build, which cannot be rerun: register the capsule {name} again");
        return Err(Error::malformed(text));
    }
    if run.ended().is_none() {
        let text = format!("{id} has not ended: wait for it, or cancel it first");
        return Err(Error::new(ErrorCode::RunNotEnded, text));
    }
    Ok(run)
}

/// The runs that a rerun of `of` must recompute so that it recomputes `from`.
pub(crate) async fn way(context: &Context, of: RunId, from: RunId) -> Result<Recompute> {
    if of == from {
        return Ok(Recompute::All);
    }
    let mut way = vec![from];
    let mut next = from;
    // At most as many steps as calls may be nested.
    while next != of {
        let run = context.runs.load(next).await?;
        let parent = run.and_then(|run| run.launched.event.parent);
        let Some(parent) = parent else {
            let text = format!("run {from} is not in the recorded tree below {of}");
            return Err(Error::new(ErrorCode::UnknownRun, text));
        };
        next = parent.run;
        way.push(next);
    }
    way.reverse();
    Ok(Recompute::Way(way))
}

/// The recorded callee of the call `key`, if `caller` repeats a run that made the same call.
pub(crate) async fn recorded_callee(
    context: &Context,
    caller: &Run,
    key: Digest,
) -> Result<Option<Run>> {
    let rerun = caller.launched.event.rerun.as_ref();
    match rerun.and_then(|rerun| rerun.of) {
        Some(of) => latest_callee(context, of, key).await,
        None => Ok(None),
    }
}

/// The capsule `current` in the version that the tree repeated by `caller` used; `recorded` is the recorded callee of
/// the same call.
pub(crate) async fn as_recorded(
    context: &Context,
    caller: &Run,
    recorded: Option<&Run>,
    current: Registered,
) -> Result<Registered> {
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

/// A recorded call with `signature` by any run of the tree that `caller` repeats; for a call whose key is not recorded,
/// for example below a callee with changed arguments.
pub(crate) async fn recorded_elsewhere(
    context: &Context,
    caller: &Run,
    signature: Digest,
) -> Result<Option<Run>> {
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
    /// The result of `find` in the tree of `id`, or in the trees that it repeats.
    async fn find<T>(
        &self,
        context: &Context,
        id: RunId,
        find: impl Fn(&RecordedTree) -> Option<T>,
    ) -> Result<Option<T>> {
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

    async fn get(&self, context: &Context, id: RunId) -> Result<Arc<RecordedTree>> {
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

/// Ends a run that reuses a recorded result, unless it has ended. Any gateway does so, also after another gateway died
/// before the end.
pub(crate) async fn take_over(context: &Context, started: Started) -> Result<Started> {
    let Some(reuses) = started.run.launched.event.reuses else {
        return Ok(started);
    };
    if started.run.ended().is_some() {
        return Ok(started);
    }
    let Started { run, waiter } = started;
    let run = match take_over_result(context, &run, &reuses).await? {
        Some(ended) => ended,
        // Another gateway was faster: wait for its result.
        None => run,
    };
    Ok(Started { run, waiter })
}

async fn take_over_result(context: &Context, run: &Run, reuses: &Reuses) -> Result<Option<Run>> {
    let recorded = context.runs.load(reuses.run).await?;
    let ended = recorded.as_ref().and_then(Run::ended);
    let Some(ended) = ended.filter(|ended| ended.hash == reuses.hash) else {
        let text = format!("the result of {} differs from the recorded one", reuses.run);
        return Err(Error::new(ErrorCode::Internal, text));
    };
    let what = format!("the result of {}", reuses.run);
    deleted_artifacts::renew(context, &what, results_of(&ended.event)).await?;
    let mut ended = ended.event.clone();
    if let Some(logs) = &ended.logs
        && deleted_artifacts::lost(context, logs.digest)
            .await?
            .is_some()
    {
        ended.logs = None;
    }
    let end = |attempt| rerun::taken_over(attempt, &ended);
    take_and_end(context, run, end).await
}

/// Whether all artifacts of the result of `recorded` exist.
pub(crate) async fn is_whole(context: &Context, recorded: &Run) -> Result<bool> {
    let Some(ended) = recorded.ended() else {
        return Ok(false);
    };
    let what = format!("the result of {}", recorded.id);
    match deleted_artifacts::renew(context, &what, results_of(&ended.event)).await {
        Ok(()) => Ok(true),
        Err(Error::ArtifactDeleted(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The output and the files of a result; its logs may be deleted.
fn results_of(ended: &Ended) -> Vec<Named> {
    let mut named = named_by_end(ended);
    named.retain(|named| named.role != Role::Logs);
    named
}
