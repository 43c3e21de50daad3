//! Flow control: rules, runs that wait for admission, and their admission.
//!
//! Every gateway follows the log and would make the same admissions; the guard on all admissions ensures that only one
//! gateway makes each. The gateway that has been running longest goes first; the others wait a moment, so that
//! conflicts are rare. Without rules, a gateway follows only the events of rules.

mod deadlock;
mod follow;
mod grant;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::chain::Chain as _;
use aod_domain::digest::Digest;
use aod_domain::flow::{
    self, Admission, Facts, Flow, Granted, Held, KeyPart, Rule, RuleName, Rules, Slots, Why,
};
use aod_domain::id::RunId;
use aod_domain::run::Launched;
use aod_domain::subject::{self, Subject};
use aod_ports::event_log::{EventLog, ReadError, StoredEvent};
use aod_services::writer::Writer;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub(crate) use self::follow::follow_runs;
pub(crate) use self::grant::admit;
use crate::context::Context;
use crate::error::Result;

/// Events about rules read at a time.
const PAGE_SIZE: usize = 500;

/// Time before a retry.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Maximum time that an answer waits until this gateway has read its own write.
const APPLIED_PATIENCE: Duration = Duration::from_secs(5);

/// State of flow control in this gateway.
#[derive(Debug, Default)]
pub(crate) struct Admitter {
    flow: Mutex<Flow>,
    /// The rules of `flow`, for requests.
    rules: Mutex<Arc<[Rule]>>,
    slots: Mutex<Slots>,
    /// Whether this gateway follows runs, and has read all events that were stored when it began.
    is_following: watch::Sender<bool>,
    /// Sequence of the last applied event of a rule.
    rules_applied: watch::Sender<u64>,
    /// Sequence of the last applied admission.
    granted_applied: watch::Sender<u64>,
    changed: Notify,
}

impl Admitter {
    /// Reads all rules.
    pub(crate) async fn load(log: &dyn EventLog) -> Result<Self, ReadError> {
        let admitter = Self::default();
        loop {
            let after = admitter.rules_sequence();
            let page = log.read(subject::RULES, after, PAGE_SIZE).await?;
            for stored in &page {
                admitter.take_rule(stored);
            }
            if page.len() < PAGE_SIZE {
                return Ok(admitter);
            }
        }
    }

    /// The rules, sorted by name.
    pub(crate) fn rules(&self) -> Arc<[Rule]> {
        let rules = self.rules.lock();
        Arc::clone(&rules.unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores a change of a rule, and waits until this gateway has applied it. Returns its sequence.
    pub(crate) async fn change(&self, writer: &Writer, event: &flow::Event) -> Result<u64> {
        let mut rules = self.flow().rules().clone();
        let decide = |rules: &Rules, _| flow::check(rules, event).map(|()| Some(event.clone()));
        let sequence = writer.change(&mut rules, decide).await?;
        let sequence = sequence.expect("a change is an event");
        self.wait_for_rule(sequence).await;
        Ok(sequence)
    }

    /// Number of runs that a rule has admitted, and number of runs that wait for it.
    pub(crate) fn counts(&self, rule: &RuleName) -> (usize, usize) {
        self.flow().counts(rule)
    }

    /// Number of runs that wait for admission.
    pub(crate) fn waiting(&self) -> usize {
        self.flow().waiting()
    }

    /// Reason why `run` waits for admission; none if it is not known to wait.
    pub(crate) fn why(&self, context: &Context, run: RunId) -> Option<Why> {
        let slots = self.slots().clone();
        self.flow().why(run, &slots, context.ports.clock.now())
    }

    /// Waits until the event of a rule at `sequence` is applied.
    async fn wait_for_rule(&self, sequence: u64) {
        let mut applied = self.rules_applied.subscribe();
        let seen = applied.wait_for(|&last| last >= sequence);
        // The rule is stored; after a timeout, the answer shows the state of a gateway that is behind.
        drop(tokio::time::timeout(APPLIED_PATIENCE, seen).await);
    }

    /// Sequence of the last applied event of a rule; 0 for none.
    pub(crate) fn rules_sequence(&self) -> u64 {
        *self.rules_applied.borrow()
    }

    pub(crate) fn take_rule(&self, stored: &StoredEvent) {
        let mut flow = self.flow();
        match stored.decode::<flow::Event>() {
            Ok(recorded) => {
                let Ok(()) = flow.rules_mut().apply(recorded);
                let rules = flow.rules().iter().cloned().collect();
                *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
            }
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "ignored an unreadable event of a rule");
                flow.rules_mut()
                    .skip(stored.sequence, Digest::of(&stored.bytes));
            }
        }
        drop(flow);
        self.rules_applied.send_replace(stored.sequence);
        self.changed.notify_one();
    }

    /// Applies events that matter to admission.
    fn take(&self, stored: &StoredEvent) {
        if Subject::is_admission(&stored.subject) {
            self.take_granted(stored);
        } else if let Some(run) = Subject::run_of(&stored.subject)
            && Subject::is_state(&stored.subject)
        {
            let mut flow = self.flow();
            if !Subject::is_request(&stored.subject) && !flow.knows(run) {
                return;
            }
            match stored.decode() {
                Ok(recorded) => flow.apply_run(run, &recorded),
                Err(error) => {
                    tracing::error!(sequence = stored.sequence, %error, "flow control ignored an unreadable event");
                }
            }
            drop(flow);
            self.changed.notify_one();
        }
    }

    fn take_granted(&self, stored: &StoredEvent) {
        match stored.decode::<Granted>() {
            Ok(recorded) => self.flow().apply_granted(&recorded),
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "ignored an unreadable admission");
            }
        }
        self.granted_applied
            .send_modify(|last| *last = stored.sequence.max(*last));
        self.changed.notify_one();
    }

    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The admission that a request for `launched` with the payload `arguments` needs, if any; `shared` are the buckets of
/// the runs above it.
pub(crate) async fn admission_of(
    context: &Context,
    launched: &Launched,
    arguments: &Value,
    priority: i8,
    shared: Vec<Held>,
) -> Result<Option<Box<Admission>>> {
    let rules = context.admitter.rules();
    let root = match &launched.parent {
        Some(parent) if rules.iter().any(uses_root) => {
            let root = parent.run.root();
            let known = context.waiters.known(root);
            match known {
                Some(known) => Some(known),
                None => context.runs.load(root).await?,
            }
        }
        _ => None,
    };
    let root = root.as_ref().map_or(launched, |run| &run.launched.event);
    let facts = Facts {
        capsule: launched.work.name(),
        tenant: &launched.tenant,
        requested_by: &root.requested_by,
        labels: &root.labels,
        arguments,
    };
    let class = launched.placement.class;
    let admission = Admission::of(rules.iter(), &facts, priority, shared, class);
    Ok(admission.map(Box::new))
}

/// Whether the key of a rule uses a property that only the root of a tree has.
fn uses_root(rule: &Rule) -> bool {
    let is_of_root = |part: &KeyPart| matches!(part, KeyPart::RequestedBy | KeyPart::Label(_));
    rule.key.iter().any(is_of_root)
}

/// Waits, at most until the gateway stops.
async fn pause(context: &Context, duration: Duration) {
    let until = Instant::now() + duration;
    context
        .shutdown
        .run_until_cancelled(tokio::time::sleep_until(until))
        .await;
}
