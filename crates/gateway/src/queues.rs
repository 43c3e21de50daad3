//! The queues that are for more than a label: nodes are told of them, and empty ones are removed.

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
use aod_domain::subject::Label;
use aod_ports::event_log::{Append, Guard, ReadError};
use aod_ports::presence::NodeMember;
use tokio::time::Instant;

use crate::context::Context;
use crate::http::error::{ApiError, ApiResult, chain};
use crate::waiting::into_node;

/// How long nodes that were asked are taken to go on: half of what they do.
const ASK_AGAIN: Duration = Duration::from_secs(ASK_AGAIN_SECONDS);

/// Queues that nodes may be asked to take from within a day: each has two consumers in the broker, which has room for
/// some thousands.
const QUEUES_MAX: usize = 1_000;

/// How long an empty queue stays after the last that was asked for, and how often that is looked at.
const KEEP: Duration = Duration::from_secs(24 * 3_600);
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// How long it is believed which nodes there are.
const NODES_FRESH: Duration = Duration::from_secs(1);

/// What this gateway has said, and knows, of queues that are for more than a label.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// When nodes were asked last, from here.
    asked: Mutex<HashMap<Label, Instant>>,
    /// What they are for: it follows from the name, so it never changes.
    known: Mutex<HashMap<Label, Arc<Event>>>,
    nodes: Mutex<Option<(Instant, Arc<[NodeMember]>)>>,
}

impl Queues {
    /// Sees to it that nodes take from the queue of `placement`, before a launch is stored in it.
    pub(crate) async fn ask(&self, context: &Context, placement: &Placement) -> ApiResult<()> {
        let queue = placement.queue();
        if placement.requirements.is_nothing() || self.was_asked(&queue)? {
            return Ok(());
        }
        context.ports.queue.ensure(&queue).await?;
        let event = Event::Asked {
            label: placement.label.clone(),
            requirements: placement.requirements.clone(),
        };
        let subject = event.subject();
        let header = context.runs.header();
        let cloud_event = CloudEvent::new(header, "placement".to_owned(), None, event);
        let append = Append::of(subject, Guard::None, &cloud_event)
            .map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
        context.runs.log().append(append).await?;
        locked(&self.asked).insert(queue, Instant::now());
        Ok(())
    }

    /// Whether nodes were asked a short time ago.
    fn was_asked(&self, queue: &Label) -> ApiResult<bool> {
        let mut asked = locked(&self.asked);
        if asked.get(queue).is_some_and(|at| at.elapsed() < ASK_AGAIN) {
            return Ok(true);
        }
        asked.retain(|_, at| at.elapsed() < KEEP);
        if asked.len() >= QUEUES_MAX && !asked.contains_key(queue) {
            let detail = format!(
                "runs with {QUEUES_MAX} different sets of requirements were asked for within a day"
            );
            return Err(ApiError::new(ErrorCode::TooManyQueues, detail));
        }
        Ok(false)
    }

    /// What `queue` is for; none of one that nobody has said anything of.
    pub(crate) async fn what_for(
        &self,
        context: &Context,
        queue: &Label,
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

    /// The size that a run requires of its node, where nodes of its label differ in that. Ordinary capsules have none.
    pub(crate) async fn size(
        &self,
        context: &Context,
        label: &Label,
        resources: &Resources,
    ) -> ApiResult<Option<Size>> {
        let ordinary = Resources::default();
        if resources.cpu_millis <= ordinary.cpu_millis
            && resources.memory_bytes <= ordinary.memory_bytes
        {
            return Ok(None);
        }
        let nodes = self.nodes(context).await?;
        let nodes = nodes
            .iter()
            .map(|node| (&node.labels[..], &node.place.equipment));
        Ok(size_that_matters(label, resources, nodes))
    }

    async fn nodes(&self, context: &Context) -> ApiResult<Arc<[NodeMember]>> {
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

/// Removes queues that nothing is left of and nobody has asked for since a day, again and again.
pub(crate) async fn remove_empty(context: &Context) {
    let mut ticks = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    loop {
        tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            _ = ticks.tick() => (),
        }
        if let Err(error) = remove_once(context).await {
            tracing::warn!(
                problem = error.problem().detail,
                "empty queues are not removed now"
            );
        }
    }
}

async fn remove_once(context: &Context) -> ApiResult<()> {
    let waiting = context.ports.queue.waiting().await?;
    let mut empty: HashMap<Label, bool> = HashMap::new();
    for queue in waiting
        .iter()
        .filter(|queue| is_for_requirements(&queue.label))
    {
        let is_empty = empty.entry(queue.label.clone()).or_insert(true);
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
            tracing::debug!(%queue, error = chain(&error), "an empty queue stays");
        }
        // Another gateway may have asked for it meanwhile.
        if !is_old().await? {
            context.ports.queue.ensure(&queue).await?;
        }
    }
    Ok(())
}
