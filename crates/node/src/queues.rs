//! The queues beyond those of its labels that a node takes from: of runs that require what it has.
//!
//! Gateways say in the log that runs with some requirements are about to wait. A node that has what they require takes
//! from their queue from then on, and until it has been empty for a while. What it missed, since it was not there or not
//! connected, it finds by looking at the queues that there are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use aod_domain::placement::{self, Event, Requirements};
use aod_domain::subject::{Label, PLACEMENTS};
use aod_ports::event_log::{From, StoredEvent, Told};
use futures::StreamExt as _;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::calls::chain;
use crate::shared::Shared;

/// How long an empty queue is taken from after the last that was said of it: twice as long as gateways take it for
/// granted. Both count from when they knew, so clocks need not agree.
const KEEP: Duration = Duration::from_secs(2 * placement::ASK_AGAIN_SECONDS);

/// How often the queues are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Pause before a log that cannot be followed is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Queues that one node takes from at a time: each has two pulls open. A cluster has as many kinds of requirements as its
/// capsules, and a node meets some of them.
const QUEUES_MAX: usize = 256;

/// The queues that this node takes from, and what their runs require.
#[derive(Debug, Default)]
pub(crate) struct Queues(watch::Sender<BTreeMap<Label, Requirements>>);

impl Queues {
    pub(crate) fn subscribe(&self) -> watch::Receiver<BTreeMap<Label, Requirements>> {
        self.0.subscribe()
    }
}

/// Keeps the queues up to date.
pub(crate) async fn follow_for_ever(shared: &Arc<Shared>) {
    let mut asked = HashMap::new();
    loop {
        // What is said from now on is heard; what was said before is found by looking.
        match shared.runs.log().follow(PLACEMENTS, From::Now).await {
            Ok(mut told) => {
                look(shared, &mut asked, true).await;
                let mut ticks = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
                loop {
                    tokio::select! {
                        biased;
                        told = told.next() => match told {
                            Some(Told::Event(event)) => take(shared, &mut asked, &event),
                            Some(Told::Reconnected) => look(shared, &mut asked, true).await,
                            None => break,
                        },
                        _ = ticks.tick() => look(shared, &mut asked, false).await,
                    }
                    tell(shared, &mut asked);
                }
            }
            Err(error) => warn!(error = %chain(&error), "what runs require is not followed now"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// What is known of a queue.
struct Asked {
    /// None where this node does not have it.
    requirements: Option<Requirements>,
    /// Until when it is taken from even if it is empty.
    until: Instant,
}

fn take(shared: &Shared, asked: &mut HashMap<Label, Asked>, stored: &StoredEvent) {
    let event = match stored.decode::<Event>() {
        Ok(recorded) => recorded.event,
        Err(error) => {
            warn!(sequence = stored.sequence, %error, "what runs require cannot be read");
            return;
        }
    };
    let queue = event.queue();
    let Event::Asked {
        label,
        requirements,
    } = event;
    let (labels, equipment) = (&shared.config.labels, &shared.config.equipment);
    let fits = placement::fits(&label, &requirements, labels, equipment).is_ok();
    let entry = Asked {
        requirements: fits.then_some(requirements),
        until: Instant::now() + KEEP,
    };
    asked.insert(queue, entry);
}

/// Looks at the queues that there are: takes from those that it has not heard of, and forgets what is empty.
/// What nobody waits in yet counts when the node has just come, for its gateways take it for granted.
async fn look(shared: &Shared, asked: &mut HashMap<Label, Asked>, has_just_come: bool) {
    let there = match shared.ports.queue.waiting().await {
        Ok(there) => there,
        Err(error) => {
            debug!(error = %chain(&error), "the queues cannot be looked at");
            return;
        }
    };
    let now = Instant::now();
    asked.retain(|queue, known| {
        let mut of_queue = there.iter().filter(|waiting| waiting.label == *queue);
        if of_queue.any(|waiting| waiting.pending + waiting.delivered > 0) {
            known.until = known.until.max(now + LOOK_EVERY * 2);
        }
        known.until > now
    });
    let mut unknown: BTreeMap<&Label, bool> = BTreeMap::new();
    for waiting in &there {
        let queue = &waiting.label;
        if placement::is_for_requirements(queue) && !asked.contains_key(queue) {
            *unknown.entry(queue).or_default() |= waiting.pending + waiting.delivered > 0;
        }
    }
    unknown.retain(|_, is_used| *is_used || has_just_come);
    for (queue, is_used) in unknown {
        match shared
            .runs
            .log()
            .read_last(&placement::said_of(queue))
            .await
        {
            Ok(Some(stored)) if is_used || is_fresh(shared, &stored) => {
                take(shared, asked, &stored);
            }
            Ok(Some(_)) => (),
            Ok(None) => warn!(%queue, "nobody has said what this queue is for"),
            Err(error) => debug!(%queue, error = %chain(&error), "a queue is not known yet"),
        }
    }
    tell(shared, asked);
}

/// Whether gateways may still take it for granted that this was heard.
fn is_fresh(shared: &Shared, stored: &StoredEvent) -> bool {
    let recorded = stored.decode::<Event>();
    let age = |at| shared.runs.clock().now().duration_since(at).unsigned_abs();
    recorded.is_ok_and(|recorded| age(recorded.time) < KEEP)
}

/// Has those taken from that this node has what is required for, the last that were asked for if there are too many.
fn tell(shared: &Shared, asked: &mut HashMap<Label, Asked>) {
    let mut fitting: Vec<(Instant, &Label, &Requirements)> = asked
        .iter()
        .filter_map(|(queue, known)| Some((known.until, queue, known.requirements.as_ref()?)))
        .collect();
    fitting.sort_unstable_by(|one, other| (other.0, other.1).cmp(&(one.0, one.1)));
    let fitting: BTreeMap<Label, Requirements> = fitting
        .into_iter()
        .take(QUEUES_MAX)
        .map(|(_, queue, requirements)| (queue.clone(), requirements.clone()))
        .collect();
    shared.queues.0.send_if_modified(|current| {
        let is_changed = *current != fitting;
        if is_changed {
            info!(
                queues = fitting.len(),
                "takes from other queues than before"
            );
            *current = fitting;
        }
        is_changed
    });
}
