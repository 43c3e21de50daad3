//! Single runs and trees, read from the log: never behind, on whichever gateway.

use std::collections::BTreeMap;

use aod_api::runs::{RunResult, RunView, SpendingView, TreeNode};
use aod_domain::contract::PAYLOAD_SIZE_BYTES_MAX;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{Ended, Payload, Run};
use aod_domain::spending::{Account, Spent};
use aod_domain::subject::{self, Subject};
use aod_ports::event_log::StoredEvent;
use aod_ports::runs::DamagedRun;
use aod_ports::spending;
use serde_json::Value;

use crate::context::Context;
use crate::gone;
use crate::http::body;
use crate::http::error::{ApiError, ApiResult};
use crate::views::{self, Seen};
use crate::waiters::RunEnd;
use crate::waiting;

/// Events of one run that are read: its state events are few, its notes three a call or so.
pub(crate) const RUN_EVENTS_MAX: usize = 10_000;

/// Events of a tree that are read at a time.
const TREE_PAGE_SIZE: usize = 1_000;

/// Pages of a tree: as many runs as a tree may have, with twenty events each.
const TREE_PAGES_MAX: usize = 200;

/// The run as the log has it, or 404.
pub(crate) async fn seen(context: &Context, id: RunId) -> ApiResult<Seen> {
    let stored = context
        .runs
        .log()
        .read(&subject::run_all(id), 0, RUN_EVENTS_MAX)
        .await?;
    Seen::replay(id, &stored)
        .map_err(|error| damaged(id, error))?
        .ok_or_else(|| unknown(id))
}

pub(crate) fn unknown(id: RunId) -> ApiError {
    ApiError::new(ErrorCode::UnknownRun, unknown_text(&id.to_string()))
}

pub(crate) fn unknown_text(id: &str) -> String {
    format!("no run has the id {id}")
}

pub(crate) fn damaged(id: RunId, error: DamagedRun) -> ApiError {
    ApiError::new(
        ErrorCode::Internal,
        format!("the events of {id} are damaged: {error}"),
    )
    .because(error)
}

/// Everything about the run `id`.
pub(crate) async fn view(context: &Context, id: RunId) -> ApiResult<RunView> {
    let seen = seen(context, id).await?;
    let waits_for = waiting::reason(context, &seen).await;
    let view = view_of_seen(context, &seen).await?;
    let spending = spending(context, id).await?;
    Ok(RunView {
        waits_for,
        spending,
        ..view
    })
}

/// What `id` and those below it have spent on models; nothing if nobody of its tree has.
async fn spending(context: &Context, id: RunId) -> ApiResult<Option<SpendingView>> {
    let account = account(context, id.root()).await?;
    if account.last.is_none() {
        return Ok(None);
    }
    let tree = if id.is_root() {
        *account.tree()
    } else {
        let family = family(context, id).await?;
        let children = children_of(&family);
        let mut below = vec![id];
        let mut sum = Spent::default();
        while let Some(run) = below.pop() {
            sum += account.of_run(run);
            let called = children.get(&run).map(Vec::as_slice).unwrap_or_default();
            below.extend(called.iter().map(|child| child.run.id));
        }
        sum
    };
    Ok(Some(SpendingView {
        own: (&account.of_run(id)).into(),
        tree: (&tree).into(),
    }))
}

/// What the tree of `root` has spent on models.
pub(crate) async fn account(context: &Context, root: RunId) -> ApiResult<Account> {
    let account = spending::load(context.runs.log().as_ref(), root).await;
    account.map_err(|error| {
        ApiError::new(
            ErrorCode::BrokerUnavailable,
            "what was spent cannot be read",
        )
        .because(error)
    })
}

/// As [`view`], of a run that was just stored, without reading it again and without the reason why
/// it waits: that takes longer than the storing.
pub(crate) async fn view_of(context: &Context, run: Run) -> ApiResult<RunView> {
    view_of_seen(context, &Seen::from(run)).await
}

/// As [`view`], of a run that was waited for until its `end`.
pub(crate) async fn view_of_end(context: &Context, id: RunId, end: &RunEnd) -> ApiResult<RunView> {
    match &end.seen {
        Some(seen) => view_of_seen(context, seen).await,
        None => view(context, id).await,
    }
}

async fn view_of_seen(context: &Context, seen: &Seen) -> ApiResult<RunView> {
    let launched = &seen.run.launched;
    let arguments = payload_left(context, &launched.event.payload).await?;
    let mut collected = Vec::new();
    if arguments.is_none() {
        collected.push("arguments".to_owned());
    }
    let result = match seen.run.ended() {
        Some(ended) => {
            let output = match &ended.event.output {
                Some(output) => payload_left(context, output).await?,
                None => None,
            };
            if output.is_none() && ended.event.output.is_some() {
                collected.push("output".to_owned());
            }
            Some(views::result(seen.run.id, launched.time, ended, output))
        }
        None => None,
    };
    Ok(RunView {
        collected,
        ..seen.view(arguments.unwrap_or_default(), result)
    })
}

/// As [`payload`]; none for one that was collected.
async fn payload_left(context: &Context, stored: &Payload) -> ApiResult<Option<Value>> {
    match payload(context, stored).await {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.problem().code == ErrorCode::ArtifactCollected.as_str() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The result of `run` with its output, wherever that is.
pub(crate) async fn result(
    context: &Context,
    run: &Run,
    ended: &Recorded<Ended>,
) -> ApiResult<RunResult> {
    let output = match &ended.event.output {
        Some(output) => Some(payload(context, output).await?),
        None => None,
    };
    Ok(views::result(run.id, run.launched.time, ended, output))
}

/// The JSON of a payload, fetched from the store if it is not in its event.
pub(crate) async fn payload(context: &Context, payload: &Payload) -> ApiResult<Value> {
    match payload {
        Payload::Inline(value) => Ok(value.clone()),
        Payload::Artifact { digest, .. } => {
            let content = match context.ports.artifacts.get_stream(*digest, None).await {
                Ok(content) => content,
                Err(error) => return Err(gone::explained(context, error).await),
            };
            let bytes = body::whole(content.bytes, PAYLOAD_SIZE_BYTES_MAX as u64).await?;
            serde_json::from_slice(&bytes).map_err(|error| {
                ApiError::new(ErrorCode::Internal, "a stored payload is no JSON").because(error)
            })
        }
    }
}

/// A whole tree, as its events up to one of them tell it.
pub(crate) struct Family {
    pub(crate) runs: BTreeMap<RunId, Seen>,
    /// The last of the events.
    pub(crate) last: Option<StoredEvent>,
    /// How many there are.
    pub(crate) events: usize,
}

/// All runs below and including the root of `id`, by their ids.
pub(crate) async fn family(context: &Context, id: RunId) -> ApiResult<BTreeMap<RunId, Seen>> {
    Ok(family_until(context, id, u64::MAX).await?.runs)
}

/// As [`family`], by the events up to and including `until`.
pub(crate) async fn family_until(context: &Context, id: RunId, until: u64) -> ApiResult<Family> {
    let filter = subject::tree(id);
    let mut runs: BTreeMap<RunId, Option<Seen>> = BTreeMap::new();
    let (mut last, mut events): (Option<StoredEvent>, usize) = (None, 0);
    for _ in 0..TREE_PAGES_MAX {
        let after = last.as_ref().map_or(0, |stored| stored.sequence);
        let mut page = context
            .runs
            .log()
            .read(&filter, after, TREE_PAGE_SIZE)
            .await?;
        page.retain(|stored| stored.sequence <= until);
        for stored in &page {
            take(&mut runs, stored)?;
        }
        let is_last = page.len() < TREE_PAGE_SIZE;
        events += page.len();
        last = page.pop().or(last);
        if is_last {
            break;
        }
    }
    let runs = runs.into_iter();
    Ok(Family {
        runs: runs.filter_map(|(id, seen)| Some((id, seen?))).collect(),
        last,
        events,
    })
}

fn take(runs: &mut BTreeMap<RunId, Option<Seen>>, stored: &StoredEvent) -> ApiResult<()> {
    let Some(id) = Subject::run_of(&stored.subject) else {
        return Ok(());
    };
    Seen::take(runs.entry(id).or_default(), id, stored).map_err(|error| damaged(id, error))
}

/// The run `id` with everything below it.
pub(crate) async fn tree(context: &Context, id: RunId) -> ApiResult<TreeNode> {
    let family = family(context, id).await?;
    let seen = family.get(&id).ok_or_else(|| unknown(id))?;
    Ok(node(seen, &children_of(&family)))
}

/// The runs of a family by their parents, in the order of their launches.
pub(crate) fn children_of(family: &BTreeMap<RunId, Seen>) -> BTreeMap<RunId, Vec<&Seen>> {
    let mut children: BTreeMap<RunId, Vec<&Seen>> = BTreeMap::new();
    for seen in family.values() {
        if let Some(parent) = &seen.run.launched.event.parent {
            children.entry(parent.run).or_default().push(seen);
        }
    }
    for siblings in children.values_mut() {
        siblings.sort_by_key(|seen| seen.run.launched.sequence);
    }
    children
}

/// Recursion as deep as calls may be nested.
fn node(seen: &Seen, children: &BTreeMap<RunId, Vec<&Seen>>) -> TreeNode {
    let run = &seen.run;
    let below = children.get(&run.id).map(Vec::as_slice).unwrap_or_default();
    TreeNode {
        run: seen.summary(),
        timings: run
            .ended()
            .map(|ended| views::timings(run.launched.time, ended)),
        reused_from: run.launched.event.reuses.map(|reuses| reuses.run),
        children: below.iter().map(|child| node(child, children)).collect(),
    }
}
