//! What a gateway does without being asked: presence, the fill of the log, and runs left over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aod_archive::Archiver;
use aod_domain::id::RunId;
use aod_domain::run::{CancelRequested, Run};
use aod_domain::subject::{self, Label};
use aod_ports::BoxError;
use aod_ports::event_log::{From, StoredEvent, Told};
use aod_ports::presence::{GatewayMember, Member};
use aod_ports::work_queue::Waiting;
use futures::StreamExt as _;
use tokio::time::{Instant, MissedTickBehavior};

use crate::context::Context;
use crate::http::error::{ApiResult, chain};
use crate::read_model::Suspect;
use crate::stopping;

/// How often a gateway says that it is there: twice within the time that is believed.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);

/// How often the fill of the log is looked at while no roots are asked for.
const FILL_INTERVAL: Duration = Duration::from_secs(2);

/// The longest between two rounds of the reconciler, in seconds.
const RECONCILE_SECONDS_MAX: u32 = 30;

/// How often the queue is told what is needed of it: launches that ended meanwhile come again if
/// the broker loses the queue, and are found ended.
const QUEUE_INTERVAL: Duration = Duration::from_secs(10);

/// How often it is looked whether a part of the log is to be archived.
const ARCHIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How often is looked for queues that are not open: a node of a new label waits for it.
const OPEN_INTERVAL: Duration = Duration::from_secs(1);

/// How long a queue that was open is taken to be.
const OPEN_FRESH: Duration = Duration::from_secs(10);

/// Consumers that a queue has: one a class.
const CONSUMERS_OF_QUEUE: usize = 2;

/// Runs that one round looks at; the next round meets the others.
const SUSPECTS_MAX: usize = 1_000;

/// How long to wait before a subscription is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Keeps the catalogue up to date.
pub(crate) async fn follow_capsules(context: &Context) {
    let capsules = &context.capsules;
    let take = |stored: &StoredEvent| capsules.apply(stored);
    keep_up(context, subject::CAPSULES, || capsules.sequence(), take).await;
}

/// Keeps the tokens up to date.
pub(crate) async fn follow_tokens(context: &Context) {
    let tokens = &context.tokens;
    let known = || tokens.tokens().sequence();
    let take = |stored: &StoredEvent| tokens.take(stored);
    keep_up(context, subject::TOKENS, known, take).await;
}

/// Keeps the rules up to date.
pub(crate) async fn follow_rules(context: &Context) {
    let admitter = &context.admitter;
    let take = |stored: &StoredEvent| admitter.take_rule(stored);
    keep_up(context, subject::RULES, || admitter.rules_sequence(), take).await;
}

/// Takes in the events under `filter` after the one that is `known`, until the gateway ends.
async fn keep_up(
    context: &Context,
    filter: &str,
    known: impl Fn() -> u64,
    take: impl Fn(&StoredEvent),
) {
    while !context.shutdown.is_cancelled() {
        match context
            .runs
            .log()
            .follow(filter, From::After(known()))
            .await
        {
            Ok(mut told) => {
                while let Some(Some(told)) = context.shutdown.run_until_cancelled(told.next()).await
                {
                    if let Told::Event(stored) = told {
                        take(&stored);
                    }
                }
            }
            Err(error) => tracing::warn!(filter, error = chain(&error), "not followed now"),
        }
        pause(context, RETRY_PAUSE).await;
    }
}

/// Keeps the read model up to date.
pub(crate) async fn follow_read_model(context: &Context) {
    while !context.shutdown.is_cancelled() {
        let log = context.runs.log().as_ref();
        if let Err(error) = context
            .read_model
            .follow(log, context.shutdown.clone())
            .await
        {
            // Lists stay as they are and say so by `as_of`; everything else goes on.
            tracing::error!(error = chain(&error), "the read model stands still");
            pause(context, RETRY_PAUSE).await;
        }
    }
}

/// Says that this gateway is there.
pub(crate) async fn announce(context: &Context) {
    let member = Member::Gateway(GatewayMember {
        gateway: context.gateway,
        url: context.url.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    });
    let mut ticks = ticks(ANNOUNCE_INTERVAL);
    while next_tick(context, &mut ticks).await {
        if let Err(error) = context.ports.presence.announce(&member).await {
            tracing::debug!(error = chain(&error), "presence was not told");
        }
    }
    if let Err(error) = context.ports.presence.leave(&member).await {
        tracing::debug!(error = chain(&error), "presence was not told of the end");
    }
}

/// Looks at the fill of the log and of the artifact store.
pub(crate) async fn watch_fill(context: &Context) {
    let mut ticks = ticks(FILL_INTERVAL);
    let artifacts = context.ports.artifacts.as_ref();
    while next_tick(context, &mut ticks).await {
        context.log_room.look(context.runs.log().as_ref()).await;
        context.disk_room.look_at_store(artifacts).await;
    }
}

/// Ends what nobody else ends, again and again.
pub(crate) async fn reconcile(context: &Context) {
    // Twice a lease time, so that tests with short leases need not wait.
    let seconds = (context.config.lease_seconds / 2).clamp(1, RECONCILE_SECONDS_MAX);
    let mut ticks = ticks(Duration::from_secs(u64::from(seconds)));
    while next_tick(context, &mut ticks).await {
        match context
            .read_model
            .suspects(context.ports.clock.now(), SUSPECTS_MAX)
            .await
        {
            Ok(suspects) => settle_all(context, &suspects).await,
            Err(error) => tracing::warn!(
                error = chain(&error),
                "runs that are left over cannot be looked for"
            ),
        }
    }
}

/// Keeps the queue of launches from beginning before what is needed, and makes it if it is lost.
pub(crate) async fn keep_queue(context: &Context) {
    // Lists that are made anew take launches for needed whose end they have not reached: a queue made by them
    // would have the whole history, which nodes look at one by one.
    context
        .shutdown
        .run_until_cancelled(lists_have_caught_up(context))
        .await;
    let mut ticks = ticks(QUEUE_INTERVAL);
    while next_tick(context, &mut ticks).await {
        let kept = match context.read_model.first_needed().await {
            Ok(sequence) => context.ports.queue.begin_at(sequence).await,
            Err(error) => {
                tracing::warn!(error = chain(&error), "what the queue needs is not known");
                continue;
            }
        };
        if let Err(error) = kept {
            tracing::warn!(error = chain(&error), "the queue of launches is not kept");
        }
    }
}

/// Waits until the lists have all that the log has now.
async fn lists_have_caught_up(context: &Context) {
    loop {
        match context.runs.log().fill().await {
            Ok(fill) => return context.read_model.reach(fill.last_sequence).await,
            Err(error) => tracing::warn!(
                error = chain(&error),
                "what the lists must have is not known"
            ),
        }
        pause(context, RETRY_PAUSE).await;
    }
}

/// Archives the log, as the gateway that is there longest: others would do the same work for nothing.
pub(crate) async fn archive(context: &Context, mut archiver: Archiver) {
    let mut ticks = ticks(ARCHIVE_INTERVAL);
    while next_tick(context, &mut ticks).await {
        let members = context.ports.presence.members().await;
        if members.is_ok_and(|members| context.is_first(&members))
            && let Err(error) = archive_all(context, &mut archiver).await
        {
            tracing::warn!(error = chain(&*error), "the log is not archived now");
        }
    }
}

async fn archive_all(context: &Context, archiver: &mut Archiver) -> Result<(), BoxError> {
    while !context.shutdown.is_cancelled() {
        let first_needed = context.read_model.first_needed().await?;
        if !archiver.step(first_needed).await? {
            break;
        }
    }
    Ok(())
}

/// Opens the queues of the labels of all nodes that are there, and those that runs wait in: nodes may take from them,
/// and change nothing.
pub(crate) async fn open_queues(context: &Context) {
    let mut ticks = ticks(OPEN_INTERVAL);
    let mut open: Option<(Instant, BTreeSet<Label>)> = None;
    while next_tick(context, &mut ticks).await {
        open.take_if(|(looked_at, _)| looked_at.elapsed() >= OPEN_FRESH);
        // What is not known now is known a second later.
        let Ok(wanted) = wanted_queues(context).await else {
            continue;
        };
        if open.is_none() {
            let waiting = context.ports.queue.waiting().await.ok();
            open = waiting.map(|waiting| (Instant::now(), whole(&waiting)));
        }
        let Some((_, open)) = &mut open else {
            continue;
        };
        let closed: Vec<Label> = wanted.difference(open).cloned().collect();
        for queue in closed {
            match context.ports.queue.ensure(&queue).await {
                Ok(()) => drop(open.insert(queue)),
                Err(error) => {
                    tracing::warn!(%queue, error = chain(&error), "a queue cannot be opened");
                }
            }
        }
    }
}

/// That of most nodes also before one is there.
async fn wanted_queues(context: &Context) -> Result<BTreeSet<Label>, BoxError> {
    let mut wanted = BTreeSet::from([Label::any()]);
    for member in context.ports.presence.members().await? {
        if let Member::Node(node) = member {
            wanted.extend(node.labels);
        }
    }
    let waiting = context.read_model.oldest_queued().await?;
    wanted.extend(waiting.iter().filter_map(|(queue, _)| queue.parse().ok()));
    Ok(wanted)
}

/// The queues that have all their consumers.
fn whole(waiting: &[Waiting]) -> BTreeSet<Label> {
    let mut counts: BTreeMap<&Label, usize> = BTreeMap::new();
    for consumer in waiting {
        *counts.entry(&consumer.label).or_default() += 1;
    }
    counts.retain(|_, count| *count >= CONSUMERS_OF_QUEUE);
    counts.into_keys().cloned().collect()
}

/// Callees first: a caller is ended only when they are.
async fn settle_all(context: &Context, suspects: &[Suspect]) {
    let parents: BTreeMap<RunId, Option<RunId>> = suspects
        .iter()
        .map(|suspect| (suspect.run, suspect.parent))
        .collect();
    let mut ordered: Vec<&Suspect> = suspects.iter().collect();
    ordered.sort_by_key(|suspect| std::cmp::Reverse(depth(&parents, suspect.run)));
    for suspect in ordered {
        if context.shutdown.is_cancelled() {
            return;
        }
        if let Err(error) = settle(context, suspect).await {
            tracing::warn!(run = %suspect.run, problem = error.problem().detail, "a run that is left over stays so for now");
        }
    }
}

/// How many of the other suspects called this one, directly or not.
fn depth(parents: &BTreeMap<RunId, Option<RunId>>, run: RunId) -> usize {
    let parent_of = |run: &RunId| {
        parents
            .get(run)
            .copied()
            .flatten()
            .filter(|parent| parents.contains_key(parent))
    };
    // Calls nest at most so deep; the bound also ends a circle, which no stored run can be in.
    std::iter::successors(parent_of(&run), parent_of)
        .take(aod_domain::handoff::DEPTH_MAX as usize + 1)
        .count()
}

async fn settle(context: &Context, suspect: &Suspect) -> ApiResult<()> {
    // The read model may be behind: the log decides.
    let Some(run) = context.runs.load(suspect.run).await? else {
        return Ok(());
    };
    if run.ended().is_some() {
        return Ok(());
    }
    let run = if suspect.is_orphan && run.cancel.is_none() {
        cancel_orphan(context, &run).await?
    } else {
        run
    };
    if stopping::end_if_queued(context, &run).await?.is_some() {
        return Ok(());
    }
    let is_abandoned = context.ports.clock.now() >= run.abandoned_at(context.config.lease_seconds);
    if is_abandoned && run.ended().is_none() {
        let request = CancelRequested {
            requested_by: run.id.to_string(),
            reason: "its caller is past its deadline".into(),
        };
        stopping::cancel_below(context, run.id, &request).await?;
        stopping::end_abandoned(context, &run).await?;
    }
    Ok(())
}

/// The caller of `run` has ended without it: nobody will ask for its result.
async fn cancel_orphan(context: &Context, run: &Run) -> ApiResult<Run> {
    let source = format!("/gateway/{}", context.gateway);
    stopping::cancel(context, run.id, &source, "its caller has ended").await
}

/// Waits, but not beyond the end of the gateway.
async fn pause(context: &Context, duration: Duration) {
    tokio::select! {
        biased;
        () = tokio::time::sleep(duration) => (),
        () = context.shutdown.cancelled() => (),
    }
}

fn ticks(interval: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Waits for the next tick; false when the gateway ends.
async fn next_tick(context: &Context, ticks: &mut tokio::time::Interval) -> bool {
    tokio::select! {
        biased;
        _ = ticks.tick() => true,
        () = context.shutdown.cancelled() => false,
    }
}
