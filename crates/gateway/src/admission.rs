//! Flow control as a gateway does it: which rules there are, who waits for admission, and who is admitted.
//!
//! Every gateway follows the log and would admit the same; the guard on all admissions makes sure that only
//! one does at a time. The one that is there longest goes ahead, the others wait a moment, so that they rarely
//! meet. Without rules nothing is followed but rules.

mod deadlock;
mod follow;
mod grant;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::flow::{
    self, Admission, Facts, Flow, Granted, Held, KeyPart, Rule, RuleName, Slots, Why,
};
use aod_domain::id::RunId;
use aod_domain::run::Launched;
use aod_domain::subject::{self, Subject};
use aod_ports::event_log::{EventLog, ReadError, StoredEvent};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub(crate) use self::follow::follow_runs;
pub(crate) use self::grant::admit;
use crate::context::Context;
use crate::http::error::ApiResult;

/// Events about rules read at a time.
const PAGE_SIZE: usize = 500;

/// How long to wait before what failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long an answer waits until this gateway has read what it has just written itself.
const APPLIED_PATIENCE: Duration = Duration::from_secs(5);

/// What this gateway knows of flow control.
#[derive(Debug, Default)]
pub(crate) struct Admitter {
    flow: Mutex<Flow>,
    /// Those of `flow`, for whoever asks for a run.
    rules: Mutex<Arc<[Rule]>>,
    slots: Mutex<Slots>,
    /// Whether runs are followed, and all that was stored when that began is taken in.
    is_following: watch::Sender<bool>,
    /// The last event about a rule taken in, and the last admission.
    rules_applied: watch::Sender<u64>,
    granted_applied: watch::Sender<u64>,
    changed: Notify,
}

impl Admitter {
    /// Reads all rules there are.
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

    /// The rules, by their names.
    pub(crate) fn rules(&self) -> Arc<[Rule]> {
        let rules = self.rules.lock();
        Arc::clone(&rules.unwrap_or_else(PoisonError::into_inner))
    }

    /// How many runs a rule lets go, and how many wait by it.
    pub(crate) fn counts(&self, rule: &RuleName) -> (usize, usize) {
        self.flow().counts(rule)
    }

    /// How many wait for admission.
    pub(crate) fn waiting(&self) -> usize {
        self.flow().waiting()
    }

    /// Why `run` waits for admission; none if it is not known to.
    pub(crate) fn why(&self, context: &Context, run: RunId) -> Option<Why> {
        let slots = self.slots().clone();
        self.flow().why(run, &slots, context.ports.clock.now())
    }

    /// Waits until the event about a rule at `sequence` is taken in.
    pub(crate) async fn wait_for_rule(&self, sequence: u64) {
        let mut applied = self.rules_applied.subscribe();
        let seen = applied.wait_for(|&last| last >= sequence);
        // It is stored: whoever asks a gateway that is behind is told so by what it answers.
        drop(tokio::time::timeout(APPLIED_PATIENCE, seen).await);
    }

    /// The last event about a rule that was taken in; 0 for none.
    pub(crate) fn rules_sequence(&self) -> u64 {
        *self.rules_applied.borrow()
    }

    pub(crate) fn take_rule(&self, stored: &StoredEvent) {
        match stored.decode::<flow::Event>() {
            Ok(recorded) => {
                let mut flow = self.flow();
                flow.apply_rule(recorded);
                let rules = flow.rules().cloned().collect();
                *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
            }
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "a rule cannot be read, and is left out");
            }
        }
        self.rules_applied.send_replace(stored.sequence);
        self.changed.notify_one();
    }

    /// Takes in what is of interest here.
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
                    tracing::error!(sequence = stored.sequence, %error, "left out of flow control");
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
                tracing::error!(sequence = stored.sequence, %error, "an admission cannot be read");
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

/// How a request for `launched`, whose payload is `arguments`, waits for admission; `shared` are the
/// rooms of the runs above it.
pub(crate) async fn admission_of(
    context: &Context,
    launched: &Launched,
    arguments: &Value,
    priority: i8,
    shared: Vec<Held>,
) -> ApiResult<Option<Box<Admission>>> {
    let rules = context.admitter.rules();
    let root = match &launched.parent {
        Some(parent) if rules.iter().any(asks_about_root) => {
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

/// Whether a rule looks at what only the root of a tree has.
fn asks_about_root(rule: &Rule) -> bool {
    let is_of_root = |part: &KeyPart| matches!(part, KeyPart::RequestedBy | KeyPart::Label(_));
    rule.key.iter().any(is_of_root)
}

/// Waits, but not beyond the end of the gateway.
async fn pause(context: &Context, duration: Duration) {
    let until = Instant::now() + duration;
    context
        .shutdown
        .run_until_cancelled(tokio::time::sleep_until(until))
        .await;
}
