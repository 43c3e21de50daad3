//! Background tasks of a gateway: presence, the fill of the log, queues, the archive, and runs that no node ends.

pub(crate) mod disk_room;
pub(crate) mod garbage_collection;
pub(crate) mod log_room;
pub(crate) mod queues;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aod_archive::Archiver;
use aod_domain::id::RunId;
use aod_domain::run::{CancelRequested, Run};
use aod_domain::subject::{self, Pool};
use aod_ports::BoxError;
use aod_ports::event_log::{Followed, From, StoredEvent};
use aod_ports::presence::{GatewayMember, Member};
use aod_ports::work_queue::Waiting;
use futures::StreamExt as _;
use tokio::time::{Instant, MissedTickBehavior};

use crate::context::Context;
use crate::error::Result;
use crate::read_model::Suspect;
use crate::runs::stopping;
use aod_services::error::chain;

/// Time between two announcements: two of them fit into the lifetime of an announcement.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);

/// Time between two checks of the fill of the log.
const FILL_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum time between two rounds of the reconciler, in seconds.
const RECONCILE_SECONDS_MAX: u32 = 30;

/// Time between two updates of the start of the queue. If the broker loses the queue in between, it delivers launches
/// of ended runs again; nodes detect these.
const QUEUE_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two checks for segments to archive.
const ARCHIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two checks for missing queues: a node of a new pool waits for its queue.
const OPEN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum age of the list of queues.
const OPEN_FRESH: Duration = Duration::from_secs(10);

/// Consumers of a queue: one for each class.
const CONSUMERS_OF_QUEUE: usize = 2;

/// Maximum number of runs in one round; the next round handles the rest.
const SUSPECTS_MAX: usize = 1_000;

/// Time before a subscription is retried.
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

/// Applies the events under `filter` after the sequence `known`, until the gateway stops.
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
            Ok(mut followed) => {
                while let Some(Some(followed)) =
                    context.shutdown.run_until_cancelled(followed.next()).await
                {
                    if let Followed::Event(stored) = followed {
                        take(&stored);
                    }
                }
            }
            Err(error) => tracing::warn!(
                filter,
                error = chain(&error),
                "cannot follow events; retrying"
            ),
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
            // Lists become stale, which `as_of` shows; everything else continues.
            tracing::error!(
                error = chain(&error),
                "cannot update the read model; retrying"
            );
            pause(context, RETRY_PAUSE).await;
        }
    }
}

/// Announces this gateway.
pub(crate) async fn announce(context: &Context) {
    let member = Member::Gateway(GatewayMember {
        gateway: context.gateway,
        url: context.url.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    });
    let mut ticks = ticks(ANNOUNCE_INTERVAL);
    while next_tick(context, &mut ticks).await {
        if let Err(error) = context.ports.presence.announce(&member).await {
            tracing::debug!(error = chain(&error), "cannot announce this gateway");
        }
    }
    if let Err(error) = context.ports.presence.leave(&member).await {
        tracing::debug!(
            error = chain(&error),
            "cannot withdraw the announcement of this gateway"
        );
    }
}

/// Checks the fill of the log and of the artifact store.
pub(crate) async fn watch_fill(context: &Context) {
    let mut ticks = ticks(FILL_INTERVAL);
    let artifacts = context.ports.artifacts.as_ref();
    while next_tick(context, &mut ticks).await {
        context.log_room.check(context.runs.log().as_ref()).await;
        context.disk_room.check_store(artifacts).await;
    }
}

/// Periodically ends runs that no other part ends.
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
                "cannot check for abandoned runs; retrying"
            ),
        }
    }
}

/// Moves the start of the work queue to the first launch that is still needed, and rebuilds a lost queue.
pub(crate) async fn keep_queue(context: &Context) {
    // A read model that is being rebuilt does not know the ends of runs yet: a queue rebuilt from it would deliver the
    // whole history to the nodes.
    context
        .shutdown
        .run_until_cancelled(lists_have_caught_up(context))
        .await;
    let mut ticks = ticks(QUEUE_INTERVAL);
    while next_tick(context, &mut ticks).await {
        let kept = match context.read_model.first_needed().await {
            Ok(sequence) => context.ports.queue.begin_at(sequence).await,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "cannot determine the start of the work queue; retrying"
                );
                continue;
            }
        };
        if let Err(error) = kept {
            tracing::warn!(
                error = chain(&error),
                "cannot update the work queue; retrying"
            );
        }
    }
}

/// Waits until the read model has all events that the log has now.
async fn lists_have_caught_up(context: &Context) {
    loop {
        match context.runs.log().fill().await {
            Ok(fill) => return context.read_model.reach(fill.last_sequence).await,
            Err(error) => tracing::warn!(
                error = chain(&error),
                "cannot read the end of the log; retrying"
            ),
        }
        pause(context, RETRY_PAUSE).await;
    }
}

/// Archives the log, if this gateway has been running longest: other gateways would repeat the same work.
pub(crate) async fn archive(context: &Context, mut archiver: Archiver) {
    let mut ticks = ticks(ARCHIVE_INTERVAL);
    while next_tick(context, &mut ticks).await {
        let members = context.ports.presence.members().await;
        if members.is_ok_and(|members| context.is_first(&members))
            && let Err(error) = archive_all(context, &mut archiver).await
        {
            tracing::warn!(error = chain(&*error), "cannot archive the log; retrying");
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

/// Opens the queues of the pools of all live nodes, and the queues in which runs wait: nodes have no right to do so.
pub(crate) async fn open_queues(context: &Context) {
    let mut ticks = ticks(OPEN_INTERVAL);
    let mut open: Option<(Instant, BTreeSet<Pool>)> = None;
    while next_tick(context, &mut ticks).await {
        open.take_if(|(read_at, _)| read_at.elapsed() >= OPEN_FRESH);
        // After an error, the next check follows a second later.
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
        let closed: Vec<Pool> = wanted.difference(open).cloned().collect();
        for queue in closed {
            match context.ports.queue.ensure(&queue).await {
                Ok(()) => drop(open.insert(queue)),
                Err(error) => {
                    tracing::warn!(%queue, error = chain(&error), "cannot open a queue; retrying");
                }
            }
        }
    }
}

/// The pool `any` has a queue even before it has a node.
async fn wanted_queues(context: &Context) -> Result<BTreeSet<Pool>, BoxError> {
    let mut wanted = BTreeSet::from([Pool::any()]);
    for member in context.ports.presence.members().await? {
        if let Member::Node(node) = member {
            wanted.extend(node.pools);
        }
    }
    let waiting = context.read_model.oldest_queued().await?;
    wanted.extend(waiting.iter().filter_map(|(queue, _)| queue.parse().ok()));
    Ok(wanted)
}

/// Queues that have all their consumers.
fn whole(waiting: &[Waiting]) -> BTreeSet<Pool> {
    let mut counts: BTreeMap<&Pool, usize> = BTreeMap::new();
    for consumer in waiting {
        *counts.entry(&consumer.pool).or_default() += 1;
    }
    counts.retain(|_, count| *count >= CONSUMERS_OF_QUEUE);
    counts.into_keys().cloned().collect()
}

/// Callees first: a caller ends only after its callees.
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
            tracing::warn!(run = %suspect.run, problem = error.problem().detail, "cannot end an abandoned run; retrying");
        }
    }
}

/// Number of other suspects above this one in its tree.
fn depth(parents: &BTreeMap<RunId, Option<RunId>>, run: RunId) -> usize {
    let parent_of = |run: &RunId| {
        parents
            .get(run)
            .copied()
            .flatten()
            .filter(|parent| parents.contains_key(parent))
    };
    // Maximum depth of calls; it also bounds a cycle, which stored runs never form.
    std::iter::successors(parent_of(&run), parent_of)
        .take(aod_domain::handoff::DEPTH_MAX as usize + 1)
        .count()
}

async fn settle(context: &Context, suspect: &Suspect) -> Result<()> {
    // The read model may be stale: the log decides.
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

/// Cancels a run whose caller has ended.
async fn cancel_orphan(context: &Context, run: &Run) -> Result<Run> {
    let source = format!("/gateway/{}", context.gateway);
    stopping::cancel(context, run.id, &source, "its caller has ended").await
}

/// Waits, at most until the gateway stops.
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

/// Waits for the next tick; false when the gateway stops.
async fn next_tick(context: &Context, ticks: &mut tokio::time::Interval) -> bool {
    tokio::select! {
        biased;
        _ = ticks.tick() => true,
        () = context.shutdown.cancelled() => false,
    }
}
