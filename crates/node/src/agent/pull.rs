//! Pulls launches from the queues of this node, while it has free capacity.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::placement::{Name, Requirements, is_for_requirements};
use aod_domain::subject::{Class, Pool};
use aod_ports::work_queue::Delivery;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::fitness::{Fitness, Readiness};
use super::take::take;
use crate::shared::Shared;
use aod_services::error::chain;

/// The part of the lease time for which one pull waits for work. The leases of its launches count from its begin.
const PULL_PART: u32 = 6;

/// Pause after a failed pull.
const PULL_RETRY: Duration = Duration::from_millis(500);

/// Minimum number of pulls in which a node fills its free capacity with roots.
const ROOT_PULLS: usize = 4;

type Pull = BoxFuture<'static, (usize, Option<Vec<Delivery>>, Duration)>;

/// One source of launches and whether a pull for it is open.
struct Source {
    queue: Pool,
    class: Class,
    /// The devices that each of its runs takes.
    devices: BTreeMap<Name, u16>,
    is_asked: bool,
    /// The node no longer takes launches from it.
    is_left: bool,
}

/// Keeps a pull open for each queue and class that the node has free capacity for; children come first.
pub(super) async fn pull(
    shared: Arc<Shared>,
    mut readiness: Readiness,
    mut queues: watch::Receiver<BTreeMap<Pool, Requirements>>,
) {
    for pool in &shared.config.pools {
        while let Err(error) = shared.ports.queue.ensure(pool).await {
            warn!(%pool, error = %chain(&error), "the node cannot open the queue of a pool; retrying");
            tokio::time::sleep(PULL_RETRY).await;
        }
    }
    let mut sources = Vec::new();
    let pools = shared.config.pools.iter();
    add_missing(&mut sources, pools.map(|pool| (pool, BTreeMap::new())));
    let mut pulls: FuturesUnordered<Pull> = FuturesUnordered::new();
    let mut counts = shared.host.ledger.subscribe();
    queues.mark_changed();
    loop {
        let fitness = readiness.borrow().clone();
        ask(&shared, &mut sources, &pulls, &fitness);
        tokio::select! {
            biased;
            Some((index, deliveries, asked)) = pulls.next(), if !pulls.is_empty() => {
                sources[index].is_asked = false;
                match deliveries {
                    Some(deliveries) => take(&shared, deliveries, asked),
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
                add_missing(&mut sources, wanted.map(|(queue, all)| (queue, all.devices.clone())));
            }
        }
    }
}

/// Adds the `queues` that are missing. Indices of existing sources do not change. The index of an abandoned source is
/// reused once its last pull has ended.
fn add_missing<'a>(
    sources: &mut Vec<Source>,
    queues: impl Iterator<Item = (&'a Pool, BTreeMap<Name, u16>)>,
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
            let free = shared.host.ledger.free_capacity_with(&source.devices);
            let max = batch(class, free.of(class));
            if max > 0 {
                source.is_asked = true;
                pulls.push(pull_one(shared, index, source.queue.clone(), class, max));
            }
        }
    }
}

/// The maximum number of launches for one pull. For roots it is a part of the free capacity, so that a burst of roots
/// spreads over all nodes that wait for work.
fn batch(class: Class, free: usize) -> usize {
    match class {
        Class::Child => free,
        Class::Root => free.div_ceil(ROOT_PULLS),
    }
}

fn pull_one(shared: &Shared, index: usize, queue: Pool, class: Class, max: usize) -> Pull {
    let work = Arc::clone(&shared.ports.queue);
    let clock = Arc::clone(shared.runs.clock());
    let wait = shared.config.lease / PULL_PART;
    Box::pin(async move {
        let asked = clock.since_boot();
        match work.pull(&queue, class, max, wait).await {
            Ok(deliveries) => (index, Some(deliveries), asked),
            Err(error) => {
                debug!(%queue, error = %chain(&error), "a pull failed");
                (index, None, asked)
            }
        }
    })
}
