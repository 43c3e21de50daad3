//! History of trees, from the log: state at an event, comparison of a replay with the read model, difference of two
//! trees.

use std::collections::BTreeMap;

use aod_api::history::{
    LastEvent, ReplayDifference, ReplayView, RunPhase, TreeAt, TreeAtNode, TreeDifference,
};
use aod_api::runs::CancelView;
use aod_domain::chain::Chain as _;
use aod_domain::dead_letter::DeadLetter;
use aod_domain::difference;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::run::Holder;
use aod_domain::spending::Account;
use aod_domain::subject;
use aod_domain::tree::{Branch, DIFFERENCES_MAX, Wait, compare};
use serde_json::Value;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::read_model::record;
use crate::reading::views::{self, Seen};
use crate::reading::{self, Family};
use crate::runs::dead_letters;

/// The run `id` and the runs below it, in their state at `event`.
pub(crate) async fn at(context: &Context, id: RunId, event: u64) -> Result<TreeAt> {
    let end = context.runs.log().fill().await?.last_sequence;
    if event > end {
        let text = format!("event {event} does not exist: the last event is {end}");
        return Err(Error::malformed(text));
    }
    let family = reading::family_until(context, id, event).await?;
    let (Some(seen), Some(last)) = (family.runs.get(&id), &family.last) else {
        let text = format!("run {id} did not exist at event {event}");
        return Err(Error::new(ErrorCode::UnknownRun, text));
    };
    let view = views::event(last)?;
    let children = reading::children_of(&family.runs);
    let branch = branch(seen, &children, &Account::default());
    Ok(TreeAt {
        event,
        last: LastEvent {
            sequence: view.sequence,
            kind: view.kind,
            time: view.time,
            run: view.run.unwrap_or(id),
        },
        tree: node(seen, &branch, &family.runs),
    })
}

/// A run of a tree with its callees. The recursion is as deep as calls may be nested.
fn branch<'a>(
    seen: &'a Seen,
    children: &BTreeMap<RunId, Vec<&'a Seen>>,
    account: &Account,
) -> Branch<'a> {
    let id = seen.run.id;
    let callees = children.get(&id).map(Vec::as_slice).unwrap_or_default();
    Branch {
        run: &seen.run,
        spent: account.of_run(id),
        callees: callees
            .iter()
            .map(|callee| branch(callee, children, account))
            .collect(),
    }
}

/// As [`branch`]; `runs` contains the notes.
fn node(seen: &Seen, branch: &Branch<'_>, runs: &BTreeMap<RunId, Seen>) -> TreeAtNode {
    let run = branch.run;
    let waits_for = branch.waits_for();
    let callees = branch.callees.iter();
    TreeAtNode {
        run: seen.summary(),
        phase: RunPhase::from(&run.phase),
        holder: run.lease().map(|lease| match &lease.event.holder {
            Holder::Node { node, .. } => node.to_string(),
            Holder::Gateway { gateway } => gateway.to_string(),
        }),
        attempts_lost: run.attempts_lost,
        waits_for: waits_for.as_ref().map(|wait| wait_text(wait, runs)),
        open_callees: match waits_for {
            Some(Wait::Callees(open)) => open,
            _ => Vec::new(),
        },
        cancel: run.cancel.as_ref().map(|cancel| CancelView {
            requested_by: cancel.requested_by.clone(),
            reason: cancel.reason.clone(),
        }),
        timings: run
            .ended()
            .map(|ended| views::timings(run.launched.time, ended)),
        children: callees
            .filter_map(|callee| Some(node(runs.get(&callee.run.id)?, callee, runs)))
            .collect(),
    }
}

fn wait_text(wait: &Wait<'_>, runs: &BTreeMap<RunId, Seen>) -> String {
    match wait {
        Wait::Admission => "admission by a rule".to_owned(),
        Wait::Node(pool) => format!("a node in pool {pool}"),
        Wait::Rest { until, error } => {
            let until = until.strftime("%H:%M:%SZ");
            format!(
                "the next attempt at {until}, after a failure: {}",
                error.message
            )
        }
        Wait::Callees(open) => {
            let names = open.iter().filter_map(|id| runs.get(id));
            let names = names.map(|seen| seen.run.launched.event.work.name().as_str());
            names.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Computes the tree of `id` from the log and compares it with the read model of this gateway.
pub(crate) async fn replay(context: &Context, id: RunId) -> Result<ReplayView> {
    let root = id.root();
    let last = context.runs.log().read_last(&subject::tree(root)).await?;
    let last = last.ok_or_else(|| reading::unknown(id))?;
    context.read_model.wait_for(last.sequence).await?;
    // The read model may be ahead by now: read the log up to its sequence.
    let kept = context.read_model.records(root).await?;
    let family = reading::family_until(context, root, kept.as_of).await?;
    if !family.runs.contains_key(&id) {
        return Err(reading::unknown(id));
    }
    let expected = expected(context, &family, kept.as_of).await?;
    let mut differences = disagreements(&expected, &kept.runs);
    let left_out = differences.len().saturating_sub(DIFFERENCES_MAX);
    differences.truncate(DIFFERENCES_MAX);
    Ok(ReplayView {
        root,
        runs: family.runs.len(),
        events: family.events,
        as_of: kept.as_of,
        is_equal: differences.is_empty(),
        differences,
        left_out,
    })
}

/// The records that the read model should have.
async fn expected(
    context: &Context,
    family: &Family,
    until: u64,
) -> Result<BTreeMap<String, Value>> {
    let mut expected = BTreeMap::new();
    for (id, seen) in &family.runs {
        let ended = seen.run.ended();
        let is_dead = ended.is_some_and(|ended| ended.event.dead_letter().is_some());
        let state = if is_dead {
            let tenant = seen.run.launched.event.tenant.clone();
            let mut letter = DeadLetter::new(tenant, *id);
            let events = dead_letters::events(context, *id).await?;
            for event in events.into_iter().filter(|event| event.sequence <= until) {
                let Ok(()) = letter.apply(event);
            }
            Some(letter.state)
        } else {
            None
        };
        expected.insert(id.to_string(), record::of(seen, state));
    }
    Ok(expected)
}

/// Differences between the log and the read model.
fn disagreements(
    log: &BTreeMap<String, Value>,
    lists: &BTreeMap<String, Value>,
) -> Vec<ReplayDifference> {
    let as_object =
        |runs: &BTreeMap<String, Value>| Value::Object(runs.clone().into_iter().collect());
    let found = difference::between(&as_object(log), &as_object(lists));
    let differences = found.into_iter().map(|found| {
        // The first part of the place is the run.
        let place = found.place.trim_start_matches('/');
        let (run, place) = place.split_at(place.find('/').unwrap_or(place.len()));
        ReplayDifference {
            run: run.to_owned(),
            place: place.to_owned(),
            log: found.left,
            read_model: found.right,
        }
    });
    differences.collect()
}

/// Differences of the trees below `left` and `right`.
pub(crate) async fn difference(
    context: &Context,
    left: RunId,
    right: RunId,
) -> Result<TreeDifference> {
    let (one, other) = (loaded(context, left).await?, loaded(context, right).await?);
    let comparison = compare(&one.branch(left)?, &other.branch(right)?);
    Ok(TreeDifference::new(left, right, comparison))
}

/// A whole tree with its spending.
struct Loaded {
    runs: BTreeMap<RunId, Seen>,
    account: Account,
}

async fn loaded(context: &Context, id: RunId) -> Result<Loaded> {
    Ok(Loaded {
        runs: reading::family(context, id).await?,
        account: reading::account(context, id.root()).await?,
    })
}

impl Loaded {
    fn branch(&self, id: RunId) -> Result<Branch<'_>> {
        let seen = self.runs.get(&id).ok_or_else(|| reading::unknown(id))?;
        let children = reading::children_of(&self.runs);
        Ok(branch(seen, &children, &self.account))
    }
}
