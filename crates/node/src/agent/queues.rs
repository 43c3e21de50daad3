//! The queues for requirements that a node takes from, in addition to the queues of its pools.
//!
//! Before runs with certain requirements wait, a gateway records the opening of their queue in the log. A node that
//! meets the requirements takes from the queue until it has been empty for a while. By listing the queues, the node
//! finds those whose opening it missed while it was offline.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aod_domain::placement::{self, Event, Requirements};
use aod_domain::subject::{PLACEMENTS, Pool};
use aod_ports::event_log::{Followed, From, StoredEvent};
use futures::StreamExt as _;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::shared::Shared;
use aod_services::error::chain;

/// How long a node takes from an empty queue after the last event about it: twice as long as gateways rely on the
/// event. Both count from the time at which they read the event, so clocks need not agree.
const KEEP: Duration = Duration::from_secs(2 * placement::ASK_AGAIN_SECONDS);

/// How often the node lists the queues.
const LIST_EVERY: Duration = Duration::from_secs(60);

/// Pause before the node follows the log again after a failure.
const RETRY: Duration = Duration::from_millis(500);

/// Maximum number of queues that one node takes from: each has two open pulls. A cluster has about as many sets of
/// requirements as capsules, and a node meets some of them.
const QUEUES_MAX: usize = 256;

/// The queues that this node takes from, and what their runs require.
pub(super) type Queues = watch::Sender<BTreeMap<Pool, Requirements>>;

/// Keeps the queues up to date.
pub(crate) async fn follow_for_ever(shared: &Shared, queues: &Queues) {
    let mut asked = HashMap::new();
    loop {
        // The node follows events from now on; listing finds the queues of earlier events.
        match shared.runs.log().follow(PLACEMENTS, From::Now).await {
            Ok(mut followed) => {
                list(shared, queues, &mut asked, true).await;
                let mut ticks = tokio::time::interval_at(Instant::now() + LIST_EVERY, LIST_EVERY);
                loop {
                    tokio::select! {
                        biased;
                        followed = followed.next() => match followed {
                            Some(Followed::Event(event)) => take(shared, &mut asked, &event),
                            Some(Followed::Reconnected) => list(shared, queues, &mut asked, true).await,
                            None => break,
                        },
                        _ = ticks.tick() => list(shared, queues, &mut asked, false).await,
                    }
                    publish(queues, &asked);
                }
            }
            Err(error) => warn!(error = %chain(&error), "cannot follow requirements; retrying"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// A known queue.
struct Asked {
    /// None if this node does not meet them.
    requirements: Option<Requirements>,
    /// The node takes from the queue until then, even if it is empty.
    until: Instant,
}

fn take(shared: &Shared, asked: &mut HashMap<Pool, Asked>, stored: &StoredEvent) {
    let event = match stored.decode::<Event>() {
        Ok(recorded) => recorded.event,
        Err(error) => {
            warn!(sequence = stored.sequence, %error, "the node cannot read the requirements of runs");
            return;
        }
    };
    let queue = event.queue();
    let Event::QueueOpened { pool, requirements } = event;
    let (pools, equipment) = (&shared.config.pools, &shared.config.equipment);
    let fits = placement::fits(&pool, &requirements, pools, equipment).is_ok();
    let entry = Asked {
        requirements: fits.then_some(requirements),
        until: Instant::now() + KEEP,
    };
    asked.insert(queue, entry);
}

/// Lists the queues: takes from unknown ones and forgets empty ones. If the node `has_just_come`, a recently opened
/// empty queue counts too, because gateways rely on the event that opened it.
async fn list(
    shared: &Shared,
    queues: &Queues,
    asked: &mut HashMap<Pool, Asked>,
    has_just_come: bool,
) {
    let there = match shared.ports.queue.waiting().await {
        Ok(there) => there,
        Err(error) => {
            debug!(error = %chain(&error), "the node cannot list the queues");
            return;
        }
    };
    let now = Instant::now();
    asked.retain(|queue, known| {
        let mut of_queue = there.iter().filter(|waiting| waiting.pool == *queue);
        if of_queue.any(|waiting| waiting.pending + waiting.delivered > 0) {
            known.until = known.until.max(now + LIST_EVERY * 2);
        }
        known.until > now
    });
    let mut unknown: BTreeMap<&Pool, bool> = BTreeMap::new();
    for waiting in &there {
        let queue = &waiting.pool;
        if placement::is_for_requirements(queue) && !asked.contains_key(queue) {
            *unknown.entry(queue).or_default() |= waiting.pending + waiting.delivered > 0;
        }
    }
    unknown.retain(|_, is_used| *is_used || has_just_come);
    for (queue, is_used) in unknown {
        let said = placement::said_of(queue);
        match shared.runs.log().read_last(&said).await {
            Ok(Some(stored)) if is_used || is_fresh(shared, &stored) => {
                take(shared, asked, &stored);
            }
            Ok(Some(_)) => (),
            Ok(None) => warn!(%queue, "the log has no requirements for this queue"),
            Err(error) => {
                debug!(%queue, error = %chain(&error), "cannot read the requirements yet");
            }
        }
    }
    publish(queues, asked);
}

/// Whether gateways may still rely on this event.
fn is_fresh(shared: &Shared, stored: &StoredEvent) -> bool {
    let recorded = stored.decode::<Event>();
    let age = |at| shared.runs.clock().now().duration_since(at).unsigned_abs();
    recorded.is_ok_and(|recorded| age(recorded.time) < KEEP)
}

/// Publishes the queues whose requirements this node meets, the latest ones if there are too many.
fn publish(queues: &Queues, asked: &HashMap<Pool, Asked>) {
    let mut fitting: Vec<(Instant, &Pool, &Requirements)> = asked
        .iter()
        .filter_map(|(queue, known)| Some((known.until, queue, known.requirements.as_ref()?)))
        .collect();
    fitting.sort_unstable_by(|one, other| (other.0, other.1).cmp(&(one.0, one.1)));
    let fitting: BTreeMap<Pool, Requirements> = fitting
        .into_iter()
        .take(QUEUES_MAX)
        .map(|(_, queue, requirements)| (queue.clone(), requirements.clone()))
        .collect();
    queues.send_if_modified(|current| {
        let is_changed = *current != fitting;
        if is_changed {
            info!(
                queues = fitting.len(),
                "the node takes from a new set of queues"
            );
            *current = fitting;
        }
        is_changed
    });
}
