//! Reads single runs and trees from the log; never stale, on any gateway.

pub(crate) mod history;
pub(crate) mod pending_reason;
pub(crate) mod selecting;
pub(crate) mod views;

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
use aod_services::pages::Pages;
use aod_services::runs::DamagedRun;
use aod_services::spending;
use serde_json::Value;

use self::views::Seen;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::files::deleted_artifacts;
use crate::runs::result_waiters::RunEnd;
use crate::streams;

/// The run as stored in the log, or 404.
pub(crate) async fn seen(context: &Context, id: RunId) -> Result<Seen> {
    let mut pages = Pages::new(context.runs.log().as_ref(), subject::run_all(id), 0);
    let mut seen = None;
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            return seen.ok_or_else(|| unknown(id));
        }
        for stored in &page {
            Seen::take(&mut seen, id, stored).map_err(|error| damaged(id, error))?;
        }
    }
}

pub(crate) fn unknown(id: RunId) -> Error {
    Error::new(ErrorCode::UnknownRun, unknown_text(&id.to_string()))
}

pub(crate) fn unknown_text(id: &str) -> String {
    format!("run {id} does not exist")
}

pub(crate) fn damaged(id: RunId, error: DamagedRun) -> Error {
    Error::new(
        ErrorCode::Internal,
        format!("the events of {id} are damaged: {error}"),
    )
    .because(error)
}

/// The view of the run `id`.
pub(crate) async fn view(context: &Context, id: RunId) -> Result<RunView> {
    let seen = seen(context, id).await?;
    let waits_for = pending_reason::reason(context, &seen).await;
    let view = view_of_seen(context, &seen).await?;
    let spending = spending(context, id).await?;
    Ok(RunView {
        waits_for,
        spending,
        ..view
    })
}

/// Spending of `id` and the runs below it on models; none if its tree has none.
async fn spending(context: &Context, id: RunId) -> Result<Option<SpendingView>> {
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

/// Spending of the tree of `root` on models.
pub(crate) async fn account(context: &Context, root: RunId) -> Result<Account> {
    Ok(spending::load(context.runs.log().as_ref(), root).await?)
}

/// As [`view`], for a run that was just stored: does not read it again, and omits the reason why it waits, which takes
/// longer than storing the run.
pub(crate) async fn view_of(context: &Context, run: Run) -> Result<RunView> {
    view_of_seen(context, &Seen::from(run)).await
}

/// As [`view`], for a run that a request has waited for until its `end`.
pub(crate) async fn view_of_end(context: &Context, id: RunId, end: &RunEnd) -> Result<RunView> {
    match &end.seen {
        Some(seen) => view_of_seen(context, seen).await,
        None => view(context, id).await,
    }
}

async fn view_of_seen(context: &Context, seen: &Seen) -> Result<RunView> {
    let launched = &seen.run.launched;
    let arguments = payload_left(context, &launched.event.payload).await?;
    let mut deleted = Vec::new();
    if arguments.is_none() {
        deleted.push("arguments".to_owned());
    }
    let result = match seen.run.ended() {
        Some(ended) => {
            let output = match &ended.event.output {
                Some(output) => payload_left(context, output).await?,
                None => None,
            };
            if output.is_none() && ended.event.output.is_some() {
                deleted.push("output".to_owned());
            }
            Some(views::result(seen.run.id, launched.time, ended, output))
        }
        None => None,
    };
    Ok(RunView {
        deleted,
        ..seen.view(arguments.unwrap_or_default(), result)
    })
}

/// As [`payload`]; none for a deleted payload.
async fn payload_left(context: &Context, stored: &Payload) -> Result<Option<Value>> {
    match payload(context, stored).await {
        Ok(value) => Ok(Some(value)),
        Err(Error::ArtifactDeleted(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The result of `run` with its output.
pub(crate) async fn result(
    context: &Context,
    run: &Run,
    ended: &Recorded<Ended>,
) -> Result<RunResult> {
    let output = match &ended.event.output {
        Some(output) => Some(payload(context, output).await?),
        None => None,
    };
    Ok(views::result(run.id, run.launched.time, ended, output))
}

/// The JSON of a payload, from its event or from the store.
pub(crate) async fn payload(context: &Context, payload: &Payload) -> Result<Value> {
    match payload {
        Payload::Inline(value) => Ok(value.clone()),
        Payload::Artifact { digest, .. } => {
            let content = match context.ports.artifacts.get_stream(*digest, None).await {
                Ok(content) => content,
                Err(error) => return Err(deleted_artifacts::explained(context, error).await),
            };
            let bytes = streams::whole(content.bytes, PAYLOAD_SIZE_BYTES_MAX).await?;
            serde_json::from_slice(&bytes).map_err(|error| {
                Error::new(ErrorCode::Internal, "a stored payload is not JSON").because(error)
            })
        }
    }
}

/// A whole tree at one of its events.
pub(crate) struct Family {
    pub(crate) runs: BTreeMap<RunId, Seen>,
    /// The last event.
    pub(crate) last: Option<StoredEvent>,
    /// Number of events.
    pub(crate) events: usize,
}

/// All runs of the tree of `id`, by id.
pub(crate) async fn family(context: &Context, id: RunId) -> Result<BTreeMap<RunId, Seen>> {
    Ok(family_until(context, id, u64::MAX).await?.runs)
}

/// As [`family`], with the events up to and including `until`.
pub(crate) async fn family_until(context: &Context, id: RunId, until: u64) -> Result<Family> {
    let mut pages = Pages::new(context.runs.log().as_ref(), subject::tree(id), 0);
    let mut runs: BTreeMap<RunId, Option<Seen>> = BTreeMap::new();
    let (mut last, mut events): (Option<StoredEvent>, usize) = (None, 0);
    loop {
        let mut page = pages.next().await?;
        let is_last = page.last().is_none_or(|stored| stored.sequence > until);
        page.retain(|stored| stored.sequence <= until);
        for stored in &page {
            take(&mut runs, stored)?;
        }
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

fn take(runs: &mut BTreeMap<RunId, Option<Seen>>, stored: &StoredEvent) -> Result<()> {
    let Some(id) = Subject::run_of(&stored.subject) else {
        return Ok(());
    };
    Seen::take(runs.entry(id).or_default(), id, stored).map_err(|error| damaged(id, error))
}

/// The run `id` with the runs below it.
pub(crate) async fn tree(context: &Context, id: RunId) -> Result<TreeNode> {
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

/// The recursion is as deep as calls may be nested.
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
