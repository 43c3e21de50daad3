//! The loops of a node: pull, announce, listen to operators and cancellations, reconcile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::disk::Room;
use aod_domain::node::Event as Asked;
use aod_domain::placement::{Name, is_for_requirements};
use aod_domain::run::Event;
use aod_domain::subject::{CANCELS, Class, Label, Subject, asked_of};
use aod_ports::event_log::{From, StoredEvent, Told};
use aod_ports::presence::{Member, NodeMember, PRESENCE_SECONDS, Place};
use aod_ports::program::inherit;
use aod_ports::work_queue::Delivery;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::SignedDuration;
use tracing::{debug, info, warn};

use crate::attempt::{Delivered, attempt};
use crate::calls::chain;
use crate::disk::Look;
use crate::ledger::Claim;
use crate::neighbours::{self, Missing, hand_over};
use crate::reconcile::reconcile;
use crate::refusal::others_may_take;
use crate::shared::Shared;
use crate::{images, lease, queues};

/// How long one pull waits for work before it is asked anew.
const PULL_WAIT: Duration = Duration::from_secs(20);

/// How long a pull that failed rests.
const PULL_RETRY: Duration = Duration::from_millis(500);

/// How long a launch that does not fit is held for a slot to come free. Source: the settled
/// points of the design.
const HOLD: Duration = Duration::from_secs(1);

/// How long a launch that this node has refused rests before others can take it: they need not hurry, and it is not
/// delivered here again and again.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(1);

/// In so many pulls at the least a node fills its room with roots.
const ROOT_PULLS: usize = 4;

/// How often a node says that it is there: three times before it is believed gone.
const ANNOUNCE_EVERY: Duration = Duration::from_millis(PRESENCE_SECONDS * 1_000 / 3);

/// How often containers are compared with the log. Source: the settled points of the design.
const RECONCILE_EVERY: Duration = Duration::from_secs(30);

/// How often the engine is asked whether it is there, and the disk whether it has room.
const ENGINE_EVERY: Duration = Duration::from_secs(5);

/// Runs all loops until the node is told to stop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let readiness = tokio::sync::watch::Sender::new(Fitness::default());
    let asked = shared
        .stop
        .run_until_cancelled(heed_operators(&shared))
        .await;
    let Some(asked) = asked else { return };
    let readiness_of_offers = readiness.subscribe();
    tokio::join!(
        stoppable(&shared, pull(Arc::clone(&shared), readiness.subscribe())),
        stoppable(
            &shared,
            announce(Arc::clone(&shared), readiness.subscribe())
        ),
        stoppable(&shared, watch_readiness(Arc::clone(&shared), readiness)),
        stoppable(&shared, follow_operators(Arc::clone(&shared), asked)),
        stoppable(&shared, hand_back_in_time(Arc::clone(&shared))),
        stoppable(&shared, queues::follow_for_ever(&shared)),
        stoppable(
            &shared,
            neighbours::listen(&shared, readiness_of_offers, |delivered| start(
                &shared, delivered
            ))
        ),
        stoppable(&shared, follow_cancels(Arc::clone(&shared))),
        stoppable(&shared, reconcile_for_ever(Arc::clone(&shared))),
        stoppable(&shared, images::collect_for_ever(&shared)),
    );
}

async fn stoppable(shared: &Shared, work: impl Future<Output = ()>) {
    let _ = shared.stop.run_until_cancelled(work).await;
}

/// What the node is fit for, whatever slots it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fitness {
    /// Why it takes no work.
    not_ready: Option<String>,
    /// Why it takes only what belongs to trees under way.
    no_roots: Option<String>,
}

impl Fitness {
    /// Of a node that has been stopped.
    pub(crate) fn stopped() -> Self {
        Self {
            not_ready: Some("stopped".to_owned()),
            no_roots: None,
        }
    }

    /// Whether the node takes work of this class, as long as it has slots.
    pub(crate) fn takes(&self, class: Class) -> bool {
        let is_kept_out = class == Class::Root && self.no_roots.is_some();
        self.not_ready.is_none() && !is_kept_out
    }

    /// Whether the node takes the same work, for whatever reasons.
    fn is_like(&self, other: &Self) -> bool {
        let takes = |fitness: &Self| (fitness.not_ready.is_none(), fitness.no_roots.is_none());
        takes(self) == takes(other)
    }
}

pub(crate) type Readiness = tokio::sync::watch::Receiver<Fitness>;

type Pull = BoxFuture<'static, (usize, Option<Vec<Delivery>>, Duration)>;

/// One source of launches and whether a pull for it is under way.
struct Source {
    queue: Label,
    class: Class,
    /// What its runs take of devices.
    devices: BTreeMap<Name, u16>,
    is_asked: bool,
    /// Nothing is taken from it any more.
    is_left: bool,
}

/// Keeps a pull open for each queue and class that there is room for; children come first.
async fn pull(shared: Arc<Shared>, mut readiness: Readiness) {
    for label in &shared.config.labels {
        while let Err(error) = shared.ports.queue.ensure(label).await {
            warn!(%label, error = %chain(&error), "the queue of a label cannot be opened");
            tokio::time::sleep(PULL_RETRY).await;
        }
    }
    let mut sources = Vec::new();
    let labels = shared.config.labels.iter();
    take_from(&mut sources, labels.map(|label| (label, BTreeMap::new())));
    let mut pulls: FuturesUnordered<Pull> = FuturesUnordered::new();
    let mut counts = shared.ledger.subscribe();
    let mut queues = shared.queues.subscribe();
    queues.mark_changed();
    loop {
        let fitness = readiness.borrow().clone();
        ask(&shared, &mut sources, &pulls, &fitness);
        tokio::select! {
            biased;
            Some((index, deliveries, received)) = pulls.next(), if !pulls.is_empty() => {
                sources[index].is_asked = false;
                match deliveries {
                    Some(deliveries) => take(&shared, deliveries, received),
                    None => tokio::time::sleep(PULL_RETRY).await,
                }
            }
            Ok(()) = counts.changed() => (),
            Ok(()) = readiness.changed() => (),
            Ok(()) = queues.changed() => {
                let wanted = queues.borrow_and_update().clone();
                for source in &mut sources {
                    let is_wanted = wanted.contains_key(&source.queue);
                    source.is_left = is_for_requirements(&source.queue) && !is_wanted;
                }
                let wanted = wanted.iter();
                take_from(&mut sources, wanted.map(|(queue, all)| (queue, all.devices.clone())));
            }
        }
    }
}

/// Adds those `queues` that are not there yet. The places of those that are do not change; a place that was left, and
/// whose last pull is over, is used again.
fn take_from<'a>(
    sources: &mut Vec<Source>,
    queues: impl Iterator<Item = (&'a Label, BTreeMap<Name, u16>)>,
) {
    for (queue, devices) in queues {
        for class in [Class::Child, Class::Root] {
            let is_it = |source: &Source| source.queue == *queue && source.class == class;
            if sources.iter().any(is_it) {
                continue;
            }
            let source = Source {
                queue: queue.clone(),
                class,
                devices: devices.clone(),
                is_asked: false,
                is_left: false,
            };
            match sources.iter().position(|old| old.is_left && !old.is_asked) {
                Some(free) => sources[free] = source,
                None => sources.push(source),
            }
        }
    }
}

fn ask(
    shared: &Arc<Shared>,
    sources: &mut [Source],
    pulls: &FuturesUnordered<Pull>,
    fitness: &Fitness,
) {
    for class in [Class::Child, Class::Root] {
        if !fitness.takes(class) {
            continue;
        }
        for (index, source) in sources.iter_mut().enumerate() {
            if source.class != class || source.is_asked || source.is_left {
                continue;
            }
            let max = batch(class, shared.ledger.room_with(&source.devices).of(class));
            if max > 0 {
                source.is_asked = true;
                pulls.push(pull_one(shared, index, source.queue.clone(), class, max));
            }
        }
    }
}

/// How many launches one pull may bring: of roots a part of the room, so that those that come at once are spread over
/// the nodes that wait for them.
fn batch(class: Class, room: usize) -> usize {
    match class {
        Class::Child => room,
        Class::Root => room.div_ceil(ROOT_PULLS),
    }
}

fn pull_one(shared: &Shared, index: usize, queue: Label, class: Class, max: usize) -> Pull {
    let (work, clock) = (
        Arc::clone(&shared.ports.queue),
        Arc::clone(shared.runs.clock()),
    );
    Box::pin(async move {
        let pulled = work.pull(&queue, class, max, PULL_WAIT).await;
        let received = clock.since_boot();
        match pulled {
            Ok(deliveries) => (index, Some(deliveries), received),
            Err(error) => {
                debug!(%queue, error = %chain(&error), "a pull failed");
                (index, None, received)
            }
        }
    })
}

/// Starts what there is room for; the rest is held for a moment, then given back.
fn take(shared: &Arc<Shared>, deliveries: Vec<Delivery>, received: Duration) {
    let room = shared.disks.look(received).room;
    if room != Room::Enough {
        // The next to come is not asked for.
        shared.engine_doubt.notify_one();
    }
    for delivery in deliveries {
        let delivered = Delivered::read(delivery, received);
        if !room.takes(delivered.delivery.class) {
            let given_back = pass_on(Arc::clone(shared), delivered, Duration::ZERO);
            shared.tasks.spawn(inherit(given_back));
        } else if shared.refused.has(delivered.delivery.run) {
            let left = leave_to_others(Arc::clone(shared), delivered);
            shared.tasks.spawn(inherit(left));
        } else if let Some(missing) = Missing::of(shared, &delivered) {
            let offered = hand_over_or_begin(Arc::clone(shared), delivered, missing);
            shared.tasks.spawn(inherit(offered));
        } else {
            begin(shared, delivered);
        }
    }
}

/// Starts it, or holds it for a moment until there is room.
fn begin(shared: &Arc<Shared>, delivered: Delivered) {
    if let Some(delivered) = start(shared, delivered) {
        let held = hold(Arc::clone(shared), delivered);
        shared.tasks.spawn(inherit(held));
    }
}

async fn hand_over_or_begin(shared: Arc<Shared>, delivered: Delivered, missing: Missing) {
    if let Some(delivered) = hand_over(&shared, delivered, &missing).await {
        begin(&shared, delivered);
    }
}

/// This node has refused the run: it tries again only when nobody else is there.
async fn leave_to_others(shared: Arc<Shared>, delivered: Delivered) {
    let loaded = shared.runs.load(delivered.delivery.run).await;
    let are_there = match loaded.ok().flatten() {
        Some(run) if run.ended().is_none() => {
            others_may_take(&shared, &run.launched.event.placement, &run.refusals).await
        }
        _ => false,
    };
    if are_there {
        pass_on(shared, delivered, LEFT_TO_OTHERS).await;
    } else {
        begin(&shared, delivered);
    }
}

/// Gives `delivered` back if there is no room for it.
fn start(shared: &Arc<Shared>, delivered: Delivered) -> Option<Delivered> {
    let launch = delivered.launch.as_ref();
    let claim = launch.map_or_else(Claim::default, |launch| claim_of(&launch.event));
    let class = delivered.delivery.class;
    let Some(seat) = shared.ledger.enter(class, &claim) else {
        return Some(delivered);
    };
    shared
        .tasks
        .spawn(inherit(attempt(Arc::clone(shared), delivered, seat)));
    None
}

/// Waits a moment for room; short enough that nothing of the lease is used up.
async fn hold(shared: Arc<Shared>, mut delivered: Delivered) {
    let end = tokio::time::Instant::now() + HOLD;
    let mut counts = shared.ledger.subscribe();
    loop {
        let Some(left) = start(&shared, delivered) else {
            return;
        };
        delivered = left;
        let changed = shared.stop.run_until_cancelled(counts.changed());
        if !matches!(
            tokio::time::timeout_at(end, changed).await,
            Ok(Some(Ok(())))
        ) {
            return pass_on(shared, delivered, Duration::ZERO).await;
        }
    }
}

/// Gives a launch back for another node to take after `delay`.
async fn pass_on(shared: Arc<Shared>, delivered: Delivered, delay: Duration) {
    let until = lease::kill_after(delivered.received, shared.config.lease);
    let left = until.saturating_sub(shared.runs.clock().since_boot());
    let queue = shared.ports.queue.as_ref();
    let ack_subject = &delivered.delivery.ack_subject;
    lease::give_back(queue, ack_subject, delay, left).await;
}

fn claim_of(launch: &Event) -> Claim {
    match launch {
        Event::Launched(launched) => Claim {
            memory_bytes: launched.resources.memory_bytes,
            cpu_millis: launched.resources.cpu_millis,
            devices: launched.placement.requirements.devices.clone(),
        },
        Event::Admitted(admitted) => Claim {
            memory_bytes: admitted.memory_bytes,
            cpu_millis: admitted.cpu_millis.unwrap_or_default(),
            devices: admitted.placement.requirements.devices.clone(),
        },
        _ => Claim::default(),
    }
}

async fn announce(shared: Arc<Shared>, readiness: Readiness) {
    loop {
        let member = Member::Node(member(&shared, readiness.borrow().clone()));
        if let Err(error) = shared.ports.presence.announce(&member).await {
            debug!(error = %chain(&error), "not announced");
        }
        tokio::time::sleep(ANNOUNCE_EVERY).await;
    }
}

/// What this node says of itself.
pub(crate) fn member(shared: &Shared, fitness: Fitness) -> NodeMember {
    let load = shared.ledger.load();
    NodeMember {
        node: shared.id,
        incarnation: shared.incarnation,
        host: shared.config.host.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        labels: shared.config.labels.clone(),
        slots: shared.ledger.capacity().slots,
        running: load.running,
        waiting: shared.ledger.waiting(),
        containers: load.containers,
        draining: load.is_draining,
        place: Place {
            equipment: shared.config.equipment.clone(),
            devices_free: shared.ledger.devices_free(),
            roots_lack: shared.ledger.roots_lack(),
            images: shared.image_uses.told(),
        },
        not_ready: fitness.not_ready,
        no_roots: fitness.no_roots,
    }
}

/// Looks whether engine and disk are fit for work.
async fn watch_readiness(shared: Arc<Shared>, readiness: tokio::sync::watch::Sender<Fitness>) {
    loop {
        let engine = shared.ports.runtime.describe().await;
        let Look { room, reason } = shared.disks.look(shared.runs.clock().since_boot());
        let (full, no_roots) = match room {
            Room::Full => (reason, None),
            Room::Enough | Room::NoRoots => (None, reason),
        };
        let fitness = Fitness {
            not_ready: engine.err().map(|error| chain(&error)).or(full),
            no_roots,
        };
        readiness.send_if_modified(|current| {
            // How much room is left changes all the time.
            let is_changed = *current != fitness;
            if current.is_like(&fitness) {
                *current = fitness;
                return is_changed;
            }
            match (&fitness.not_ready, &fitness.no_roots) {
                (Some(reason), _) => warn!(reason, "takes no work"),
                (None, Some(reason)) => warn!(reason, "takes no new trees"),
                (None, None) => info!("takes work"),
            }
            *current = fitness;
            is_changed
        });
        // Without a look at once a node whose engine has just gone would take launch after launch.
        let _ = tokio::time::timeout(ENGINE_EVERY, shared.engine_doubt.notified()).await;
    }
}

/// Takes in the last that an operator has asked of this node, before it takes any work; answers with
/// its place in the log.
async fn heed_operators(shared: &Shared) -> u64 {
    loop {
        let asked = shared.runs.log().read_last(&asked_of(shared.id)).await;
        match asked {
            Ok(Some(stored)) => {
                heed(shared, &stored);
                return stored.sequence;
            }
            Ok(None) => return 0,
            Err(error) => {
                warn!(error = %chain(&error), "what operators asked for is not known yet");
            }
        }
        tokio::time::sleep(PULL_RETRY).await;
    }
}

async fn follow_operators(shared: Arc<Shared>, after: u64) {
    let asked = asked_of(shared.id);
    follow(&shared, &asked, From::After(after), |event| {
        heed(&shared, event);
    })
    .await;
}

fn heed(shared: &Shared, stored: &StoredEvent) {
    let Ok(recorded) = stored.decode::<Asked>() else {
        return;
    };
    let (is_draining, drained_at) = match recorded.event {
        Asked::DrainRequested { within_seconds, .. } => {
            let within = within_seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
            (true, within.map(|within| recorded.time + within))
        }
        Asked::ResumeRequested { .. } => (false, None),
    };
    info!(is_draining, ?drained_at, "an operator has spoken");
    shared.ledger.set_draining(is_draining);
    shared.drained_at.send_replace(drained_at);
}

/// Says when the time of a draining node is over, until it takes work again.
async fn hand_back_in_time(shared: Arc<Shared>) {
    let mut drained_at = shared.drained_at.subscribe();
    loop {
        shared.is_drained.send_replace(false);
        let at = *drained_at.borrow_and_update();
        let over = async {
            let Some(at) = at else {
                return std::future::pending().await;
            };
            let left = at.duration_since(shared.runs.clock().now());
            tokio::time::sleep(left.try_into().unwrap_or_default()).await;
            info!("the time to drain is over: what runs is handed back");
            shared.is_drained.send_replace(true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            changed = drained_at.changed() => if changed.is_err() { return },
            () = over => (),
        }
    }
}

async fn follow_cancels(shared: Arc<Shared>) {
    follow(&shared, CANCELS, From::Now, |event| {
        if let Some(run) = Subject::run_of(&event.subject) {
            shared.cancel(run);
        }
    })
    .await;
}

async fn follow(shared: &Shared, filter: &str, from: From, mut take: impl FnMut(&StoredEvent)) {
    loop {
        match shared.runs.log().follow(filter, from).await {
            Ok(mut told) => {
                while let Some(told) = told.next().await {
                    if let Told::Event(event) = told {
                        take(&event);
                    }
                }
            }
            Err(error) => warn!(filter, error = %chain(&error), "the log cannot be followed"),
        }
        tokio::time::sleep(PULL_RETRY).await;
    }
}

async fn reconcile_for_ever(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(RECONCILE_EVERY).await;
        reconcile(&shared).await;
    }
}
