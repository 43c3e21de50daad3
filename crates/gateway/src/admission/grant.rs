//! Who is admitted, and launched.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aod_domain::event::CloudEvent;
use aod_domain::flow::Granted;
use aod_domain::id::RunId;
use aod_domain::run::{Command, Rejection};
use aod_domain::subject;
use aod_ports::event_log::{Append, AppendError, Guard};
use aod_ports::runs::HandleError;
use futures::{StreamExt as _, stream};
use jiff::SignedDuration;

use super::deadlock::end_deadlocked;
use super::{APPLIED_PATIENCE, RETRY_PAUSE, pause};
use crate::context::Context;
use crate::http::error::chain;
use crate::waiting;

/// How often slots are looked at, and whether somebody may go because time has passed.
const TICK: Duration = Duration::from_secs(1);

/// How long a gateway that is not the first leaves an admission to that one.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long after its admission a run is launched by another gateway than the one that admitted it.
const LAUNCH_PATIENCE: SignedDuration = SignedDuration::from_secs(3);

/// Launches that are stored at a time.
const LAUNCHES_AT_A_TIME: usize = 16;

/// Admits whoever may go, again and again.
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
            is_first = look_around(context).await.unwrap_or(is_first);
            launch_late(context, is_first).await;
            if is_first {
                end_deadlocked(context, &mut suspects).await;
            }
        }
        if !is_first && next(context).is_some() {
            pause(context, PATIENCE).await;
        }
        while let Some(granted) = next(context) {
            if let Err(error) = grant(context, granted).await {
                tracing::warn!(error = chain(&error), "nobody is admitted now");
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

/// Looks at the slots that there are; whether no other gateway is there longer than this one.
async fn look_around(context: &Context) -> Option<bool> {
    let members = context.ports.presence.members().await.ok()?;
    let is_first = context.is_first(&members);
    let mut slots = BTreeMap::new();
    for node in members.into_iter().filter_map(waiting::into_node) {
        let is_open = !node.draining && node.not_ready.is_none();
        for label in node.labels {
            *slots.entry(label).or_default() += if is_open { node.slots } else { 0 };
        }
    }
    *context.admitter.slots() = slots;
    Some(is_first)
}

/// Stores an admission, and launches who was admitted; somebody else being faster is no failure.
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
        Ok(stored) => {
            launch_all(context, runs).await;
            stored
        }
        Err(AppendError::Conflict { .. }) => sequence + 1,
        Err(error) => return Err(error),
    };
    // Decided on again only once it is known here.
    let seen = applied.wait_for(|&last| last >= stored);
    drop(tokio::time::timeout(APPLIED_PATIENCE, seen).await);
    Ok(())
}

async fn launch_all(context: &Context, runs: Vec<RunId>) {
    let launches = stream::iter(runs).map(|run| launch(context, run));
    let launched = launches.buffer_unordered(LAUNCHES_AT_A_TIME);
    launched.for_each(|()| async {}).await;
}

/// Whoever does not get this done leaves it to [`launch_late`].
async fn launch(context: &Context, run: RunId) {
    match context.runs.handle(run, &Command::Admit, None).await {
        Ok(run) => context
            .metrics
            .count_launch(run.launched.event.placement.class),
        Err(HandleError::Rejected {
            rejection: Rejection::Ended,
            ..
        }) => (),
        Err(error) => {
            tracing::warn!(%run, error = chain(&error), "an admitted run is not launched yet");
        }
    }
}

/// Launches who was admitted by a gateway that did not get that far.
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
