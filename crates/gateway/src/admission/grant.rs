//! Admits and launches runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aod_domain::event::CloudEvent;
use aod_domain::flow::{Grant, Granted};
use aod_domain::id::RunId;
use aod_domain::run::{Command, Rejection};
use aod_domain::subject::{self, Class};
use aod_ports::event_log::{Append, AppendError, Guard};
use aod_services::runs::HandleError;
use futures::{StreamExt as _, stream};
use jiff::SignedDuration;

use super::deadlock::end_deadlocked;
use super::{APPLIED_PATIENCE, RETRY_PAUSE, pause};
use crate::context::Context;
use crate::error::Result;
use crate::reading::pending_reason;
use aod_services::error::chain;

/// Time between two checks of the slots, and of runs that can be admitted because time has passed.
const TICK: Duration = Duration::from_secs(1);

/// Time for which a gateway leaves an admission to the gateway that has been running longest.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time after its admission after which any gateway launches a run.
const LAUNCH_PATIENCE: SignedDuration = SignedDuration::from_secs(3);

/// Time after which a run that no node has taken returns its admission, if callees wait for its bucket.
const START_PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// Launches that are stored concurrently.
const LAUNCHES_AT_A_TIME: usize = 16;

/// Admits runs until the gateway stops.
pub(crate) async fn admit(context: &Context) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut is_first, mut suspects) = (false, BTreeSet::new());
    while !context.shutdown.is_cancelled() {
        let is_tick = tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            _ = ticks.tick() => true,
            () = context.admitter.changed.notified() => false,
        };
        if !*context.admitter.is_following.borrow() {
            continue;
        }
        if is_tick {
            is_first = update_slots(context).await.unwrap_or(is_first);
            launch_late(context, is_first).await;
            if is_first {
                return_unused(context).await;
                end_deadlocked(context, &mut suspects).await;
            }
        }
        if !is_first && next(context).is_some() {
            pause(context, PATIENCE).await;
        }
        while let Some(granted) = next(context) {
            if let Err(error) = grant(context, granted).await {
                tracing::warn!(error = chain(&error), "cannot store an admission; retrying");
                pause(context, RETRY_PAUSE).await;
                break;
            }
        }
    }
}

fn next(context: &Context) -> Option<Granted> {
    let slots = context.admitter.slots().clone();
    let now = context.ports.clock.now();
    context.admitter.flow().next(&slots, now)
}

/// Updates the slots; returns whether this gateway has been running longest.
async fn update_slots(context: &Context) -> Option<bool> {
    let members = context.ports.presence.members().await.ok()?;
    let is_first = context.is_first(&members);
    let mut slots = BTreeMap::new();
    for node in members.into_iter().filter_map(pending_reason::into_node) {
        let is_open = node.takes(Class::Root);
        for pool in node.pools {
            *slots.entry(pool).or_default() += if is_open { node.slots } else { 0 };
        }
    }
    *context.admitter.slots() = slots;
    Some(is_first)
}

/// Stores an admission and launches its runs. If another gateway was faster, that is no error.
async fn grant(context: &Context, granted: Granted) -> Result<(), AppendError> {
    let admitter = &context.admitter;
    let last = admitter.flow().last();
    let (sequence, previous) = last.map_or((0, None), |(sequence, hash)| (sequence, Some(hash)));
    let (subject, runs) = (granted.subject(), granted.runs().to_vec());
    let header = context.runs.header();
    let event = CloudEvent::new(header, "admission".to_owned(), previous, granted);
    let guard = Guard::Last {
        filter: subject::ADMISSIONS.to_owned(),
        sequence,
    };
    let append = Append::of(subject, guard, &event);
    let append = append.expect("a bounded number of ids fits an event");
    let mut applied = admitter.granted_applied.subscribe();
    let stored = match context.runs.log().append(append).await {
        Ok(granted) => {
            let grants = runs.into_iter().map(|run| Grant { run, granted });
            launch_all(context, grants).await;
            granted
        }
        Err(AppendError::Conflict { .. }) => sequence + 1,
        Err(error) => return Err(error),
    };
    // The next decision needs this admission.
    let seen = applied.wait_for(|&last| last >= stored);
    drop(tokio::time::timeout(APPLIED_PATIENCE, seen).await);
    Ok(())
}

async fn launch_all(context: &Context, grants: impl IntoIterator<Item = Grant>) {
    let launches = stream::iter(grants).map(|grant| launch(context, grant));
    let launched = launches.buffer_unordered(LAUNCHES_AT_A_TIME);
    launched.for_each(|()| async {}).await;
}

/// [`launch_late`] retries a failure.
async fn launch(context: &Context, grant: Grant) {
    if let Err(error) = try_launch(context, grant).await {
        let (run, problem) = (grant.run, &error.problem().detail);
        tracing::warn!(%run, problem, "cannot launch an admitted run; retrying");
    }
}

async fn try_launch(context: &Context, Grant { run, granted }: Grant) -> Result<()> {
    let known = context.runs.load(run).await?;
    if let Some(run) = &known {
        // The run may have waited longer than nodes pull from its queue.
        let placement = &run.launched.event.placement;
        context.queues.ask(context, placement).await?;
    }
    let admit = Command::Admit { granted };
    match context.runs.handle(run, &admit, known).await {
        Ok(run) => {
            let class = run.launched.event.placement.class;
            context.metrics.count_launch(class);
            Ok(())
        }
        Err(HandleError::Rejected {
            rejection: Rejection::Ended | Rejection::NotAdmitted,
            ..
        }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Launches runs whose gateway admitted them and did not launch them.
async fn launch_late(context: &Context, is_first: bool) {
    let patience = if is_first {
        LAUNCH_PATIENCE
    } else {
        LAUNCH_PATIENCE * 2
    };
    let before = context.ports.clock.now() - patience;
    let late = context.admitter.flow().not_launched(before);
    launch_all(context, late).await;
}

/// Returns the admissions of runs that do not start, if callees wait for their buckets.
async fn return_unused(context: &Context) {
    let before = context.ports.clock.now() - START_PATIENCE;
    let unused = context.admitter.flow().not_taken(before);
    for Grant { run, granted } in unused {
        match has_live_callees(context, run).await {
            Ok(false) => (),
            // The callees share the buckets of the run. They end, or its next attempt ends them.
            Ok(true) => continue,
            Err(error) => {
                tracing::warn!(%run, problem = error.problem().detail, "cannot read the callees of the run; retrying");
                continue;
            }
        }
        let return_admission = Command::Return { granted };
        match context.runs.handle(run, &return_admission, None).await {
            Ok(_) => tracing::info!(%run, "no node takes the run: it waits for admission again"),
            // A node has taken the run, or the run has ended.
            Err(HandleError::Rejected { .. }) => (),
            Err(error) => {
                tracing::warn!(%run, error = chain(&error), "cannot return the admission of the run; retrying");
            }
        }
    }
}

/// Whether callees of an earlier attempt of `run` have not ended.
async fn has_live_callees(context: &Context, run: RunId) -> Result<bool> {
    let known = context.runs.load(run).await?;
    let Some(run) = known.filter(|run| run.attempts > 0) else {
        return Ok(false);
    };
    let callees = context.runs.callees(&run).await?;
    Ok(callees.values().any(Option::is_none))
}
