//! Queues for requirements: announces them to nodes, and removes empty ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::capsule::Resources;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::CloudEvent;
use aod_domain::placement::{
    ASK_AGAIN_SECONDS, Event, Size, is_for_requirements, said_of, size_that_matters,
};
use aod_domain::run::Placement;
use aod_domain::subject::Pool;
use aod_ports::event_log::{Append, Guard, ReadError};
use aod_ports::presence::NodeMember;
use tokio::time::Instant;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::reading::pending_reason::into_node;
use aod_services::error::chain;

/// Time between two `queue_opened` events for a queue: half as long as nodes pull from it after such an event.
const ASK_AGAIN: Duration = Duration::from_secs(ASK_AGAIN_SECONDS);

/// Queues that a gateway may open within a day: each has two consumers in the broker, which can have some thousands.
const QUEUES_MAX: usize = 1_000;

/// Time for which an unused queue is kept, and time between two checks for unused queues.
const KEEP: Duration = Duration::from_secs(24 * 3_600);
const CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// Maximum age of the list of nodes.
const NODES_FRESH: Duration = Duration::from_secs(1);

/// Queues for requirements, as known to this gateway.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Time of the last `queue_opened` event of this gateway for each queue.
    asked: Mutex<HashMap<Pool, Instant>>,
    /// Requirements of each queue; they follow from its name, so they never change.
    known: Mutex<HashMap<Pool, Arc<Event>>>,
    nodes: Mutex<Option<(Instant, Arc<[NodeMember]>)>>,
}

impl Queues {
    /// Ensures that nodes pull from the queue of `placement`, before a launch is stored in it.
    pub(crate) async fn ask(&self, context: &Context, placement: &Placement) -> Result<()> {
        let queue = placement.queue();
        if placement.requirements.is_nothing() || self.was_asked(&queue)? {
            return Ok(());
        }
        context.ports.queue.ensure(&queue).await?;
        let event = Event::QueueOpened {
            pool: placement.pool.clone(),
            requirements: placement.requirements.clone(),
        };
        let subject = event.subject();
        let header = context.runs.header();
        let cloud_event = CloudEvent::new(header, "placement".to_owned(), None, event);
        let append = Append::of(subject, Guard::None, &cloud_event)
            .map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
        context.runs.log().append(append).await?;
        locked(&self.asked).insert(queue, Instant::now());
        Ok(())
    }

    /// Whether this gateway announced `queue` recently.
    fn was_asked(&self, queue: &Pool) -> Result<bool> {
        let mut asked = locked(&self.asked);
        if asked.get(queue).is_some_and(|at| at.elapsed() < ASK_AGAIN) {
            return Ok(true);
        }
        asked.retain(|_, at| at.elapsed() < KEEP);
        if asked.len() >= QUEUES_MAX && !asked.contains_key(queue) {
            let detail = format!(
                "within a day, runs had {QUEUES_MAX} different sets of requirements, the maximum: use the same \
                requirements for similar runs"
            );
            return Err(Error::new(ErrorCode::TooManyQueues, detail));
        }
        Ok(false)
    }

    /// The `queue_opened` event of `queue`, if there is one.
    pub(crate) async fn what_for(
        &self,
        context: &Context,
        queue: &Pool,
    ) -> Result<Option<Arc<Event>>, ReadError> {
        if let Some(known) = locked(&self.known).get(queue) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(stored) = context.runs.log().read_last(&said_of(queue)).await? else {
            return Ok(None);
        };
        let Ok(recorded) = stored.decode::<Event>() else {
            return Ok(None);
        };
        let event = Arc::new(recorded.event);
        let mut known = locked(&self.known);
        if known.len() >= QUEUES_MAX {
            known.clear();
        }
        known.insert(queue.clone(), Arc::clone(&event));
        Ok(Some(event))
    }

    /// The size that a run requires of its node, if some nodes of its pool are too small; none for ordinary capsules.
    pub(crate) async fn size(
        &self,
        context: &Context,
        pool: &Pool,
        resources: &Resources,
    ) -> Result<Option<Size>> {
        let ordinary = Resources::default();
        if resources.cpu_millis <= ordinary.cpu_millis
            && resources.memory_bytes <= ordinary.memory_bytes
        {
            return Ok(None);
        }
        let nodes = self.nodes(context).await?;
        let nodes = nodes
            .iter()
            .map(|node| (&node.pools[..], &node.place.equipment));
        Ok(size_that_matters(pool, resources, nodes))
    }

    async fn nodes(&self, context: &Context) -> Result<Arc<[NodeMember]>> {
        let known = locked(&self.nodes).clone();
        if let Some((at, nodes)) = known
            && at.elapsed() < NODES_FRESH
        {
            return Ok(nodes);
        }
        let members = context.ports.presence.members().await?;
        let nodes: Arc<[NodeMember]> = members.into_iter().filter_map(into_node).collect();
        *locked(&self.nodes) = Some((Instant::now(), Arc::clone(&nodes)));
        Ok(nodes)
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Periodically removes queues that are empty and were not requested for a day.
pub(crate) async fn remove_empty(context: &Context) {
    let mut ticks = tokio::time::interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            _ = ticks.tick() => (),
        }
        if let Err(error) = remove_once(context).await {
            tracing::warn!(
                problem = error.problem().detail,
                "cannot remove empty queues; retrying later"
            );
        }
    }
}

async fn remove_once(context: &Context) -> Result<()> {
    let waiting = context.ports.queue.waiting().await?;
    let mut empty: HashMap<Pool, bool> = HashMap::new();
    for queue in waiting
        .iter()
        .filter(|queue| is_for_requirements(&queue.pool))
    {
        let is_empty = empty.entry(queue.pool.clone()).or_insert(true);
        *is_empty &= queue.pending + queue.delivered == 0;
    }
    let now = context.ports.clock.now();
    for (queue, _) in empty.into_iter().filter(|(_, is_empty)| *is_empty) {
        let is_old = async || {
            let stored = context.runs.log().read_last(&said_of(&queue)).await?;
            let asked = stored.and_then(|stored| stored.decode::<Event>().ok());
            let age = asked.map(|asked| now.duration_since(asked.time).unsigned_abs());
            Ok::<_, ReadError>(age.is_none_or(|age| age >= KEEP))
        };
        if !is_old().await? {
            continue;
        }
        if let Err(error) = context.ports.queue.forget(&queue).await {
            tracing::debug!(%queue, error = chain(&error), "cannot remove an empty queue");
        }
        // Another gateway may have requested the queue in the meantime.
        if !is_old().await? {
            context.ports.queue.ensure(&queue).await?;
        }
    }
    Ok(())
}
