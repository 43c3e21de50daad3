//! Flow control as a gateway does it: which rules there are, who waits for admission, and who is admitted.
//!
//! Every gateway follows the log and would admit the same; the guard on all admissions makes sure that only
//! one does at a time. The one that is there longest goes ahead, the others wait a moment, so that they rarely
//! meet. Without rules nothing is followed but rules.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::event::{CloudEvent, Recorded};
use aod_domain::flow::{
    self, Admission, Facts, Flow, Granted, KeyPart, Rule, RuleName, Slots, Why,
};
use aod_domain::id::{GatewayId, RunId};
use aod_domain::run::{Command, Launched, Rejection};
use aod_domain::subject::{self, Subject};
use aod_ports::event_log::{
    Append, AppendError, EventLog, From, Guard, ReadError, StoredEvent, Told,
};
use aod_ports::presence::Member;
use aod_ports::runs::HandleError;
use futures::{StreamExt as _, stream};
use jiff::SignedDuration;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::context::Context;
use crate::http::error::{ApiError, ApiResult, chain};
use crate::waiting;

/// Events about rules read at a time.
const PAGE_SIZE: usize = 500;

/// How often slots are looked at, and whether somebody may go because time has passed.
const TICK: Duration = Duration::from_secs(1);

/// How long a gateway that is not the first leaves an admission to that one.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long after its admission a run is launched by another gateway than the one that admitted it.
const LAUNCH_PATIENCE: SignedDuration = SignedDuration::from_secs(3);

/// How long to wait before what failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long an answer waits until this gateway has read what it has just written itself.
const APPLIED_PATIENCE: Duration = Duration::from_secs(5);

/// How often runs are looked for that wait although there are no rules.
const LEFT_OVER_LOOK: Duration = Duration::from_secs(5);

/// Launches that are stored at a time.
const LAUNCHES_AT_A_TIME: usize = 16;

/// What this gateway knows of flow control.
#[derive(Debug, Default)]
pub(crate) struct Admitter {
    flow: Mutex<Flow>,
    slots: Mutex<Slots>,
    /// Whether runs are followed, from before the first that has not ended.
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
            let after = *admitter.rules_applied.borrow();
            let page = log.read(subject::RULES, after, PAGE_SIZE).await?;
            for stored in &page {
                admitter.take_rule(stored);
            }
            if page.len() < PAGE_SIZE {
                return Ok(admitter);
            }
        }
    }

    pub(crate) fn rules(&self) -> Vec<Rule> {
        self.flow().rules().cloned().collect()
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

    fn take_rule(&self, stored: &StoredEvent) {
        match Recorded::<flow::Event>::decode(stored.sequence, &stored.bytes) {
            Ok(recorded) => self.flow().apply_rule(recorded),
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
            && (Subject::begins_run(&stored.subject) || Subject::is_result(&stored.subject))
        {
            let mut flow = self.flow();
            if !Subject::is_request(&stored.subject) && !flow.knows(run) {
                return;
            }
            match Recorded::decode(stored.sequence, &stored.bytes) {
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
        match Recorded::<Granted>::decode(stored.sequence, &stored.bytes) {
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

/// How a request for `launched`, whose payload is `arguments`, waits for admission; `caller` is the run that
/// calls it.
pub(crate) async fn admission_of(
    context: &Context,
    launched: &Launched,
    arguments: &Value,
    priority: i8,
    caller: Option<&Admission>,
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
        requested_by: &root.requested_by,
        labels: &root.labels,
        arguments,
    };
    let class = launched.placement.class;
    let admission = Admission::of(&rules, &facts, priority, caller, class);
    Ok(admission.map(Box::new))
}

/// Whether a rule looks at what only the root of a tree has.
fn asks_about_root(rule: &Rule) -> bool {
    let is_of_root = |part: &KeyPart| matches!(part, KeyPart::RequestedBy | KeyPart::Label(_));
    rule.key.iter().any(is_of_root)
}

/// Keeps the rules up to date.
pub(crate) async fn follow_rules(context: &Context) {
    while !context.shutdown.is_cancelled() {
        let after = From::After(*context.admitter.rules_applied.borrow());
        match context.runs.log().follow(subject::RULES, after).await {
            Ok(mut told) => {
                while let Some(Some(told)) = context.shutdown.run_until_cancelled(told.next()).await
                {
                    if let Told::Event(stored) = told {
                        context.admitter.take_rule(&stored);
                    }
                }
            }
            Err(error) => tracing::warn!(error = chain(&error), "rules are not followed now"),
        }
        pause(context, RETRY_PAUSE).await;
    }
}

/// Follows the runs while there are rules, or somebody waits or is in a room still.
pub(crate) async fn follow_runs(context: &Context) {
    while context
        .shutdown
        .run_until_cancelled(is_needed(context))
        .await
        .is_some()
    {
        if let Err(error) = follow_while_needed(context).await {
            tracing::warn!(
                problem = error.problem().detail,
                "runs are not admitted here now"
            );
            pause(context, RETRY_PAUSE).await;
        }
        context.admitter.is_following.send_replace(false);
    }
}

/// Waits until there are rules, or somebody waits by one that is gone: a gateway that had not heard of that may have
/// stored the request, or all gateways may have been started anew since.
async fn is_needed(context: &Context) {
    let mut rules = context.admitter.rules_applied.subscribe();
    loop {
        let has_rules = rules.wait_for(|_| context.admitter.flow().has_rules());
        if tokio::time::timeout(LEFT_OVER_LOOK, has_rules)
            .await
            .is_ok()
        {
            return;
        }
        match context.read_model.has_requested().await {
            Ok(true) => return,
            Ok(false) => (),
            Err(error) => tracing::warn!(
                error = chain(&error),
                "who waits for admission cannot be looked for"
            ),
        }
    }
}

async fn follow_while_needed(context: &Context) -> ApiResult<()> {
    let (admitter, log) = (&context.admitter, context.runs.log());
    let from = first_sequence(context).await?;
    let last = log.read_last(subject::ADMISSIONS).await?;
    let last = last.map(|stored| Recorded::decode(stored.sequence, &stored.bytes));
    let last = last.transpose().map_err(|error| {
        ApiError::new(ErrorCode::Internal, "the last admission is damaged").because(error)
    })?;
    {
        let mut flow = admitter.flow();
        *flow = flow.begin(from, last.as_ref());
    }
    let mut told = log
        .follow(subject::ALL, From::After(from.saturating_sub(1)))
        .await?;
    admitter.is_following.send_replace(true);
    admitter.changed.notify_one();
    while let Some(Some(told)) = context.shutdown.run_until_cancelled(told.next()).await {
        let Told::Event(stored) = told else { continue };
        admitter.take(&stored);
        let flow = admitter.flow();
        if !flow.has_rules() && flow.is_idle() {
            return Ok(());
        }
    }
    Ok(())
}

/// From where on runs are followed: all that has not ended begins there or later, and all admissions that a
/// rate looks at are stored there or later.
async fn first_sequence(context: &Context) -> ApiResult<u64> {
    let needed = context.read_model.first_needed().await?;
    let Some(seconds) = context.admitter.flow().rate_seconds_max() else {
        return Ok(needed);
    };
    let since = context.ports.clock.now() - SignedDuration::from_secs(seconds.into());
    Ok(needed.min(context.read_model.last_before(since).await?))
}

/// Admits whoever may go, again and again.
pub(crate) async fn admit(context: &Context) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut is_first = false;
    while !context.shutdown.is_cancelled() {
        let is_tick = tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            _ = ticks.tick() => true,
            () = context.admitter.changed.notified() => false,
        };
        if !*context.admitter.is_following.borrow() {
            continue;
        }
        if is_tick {
            is_first = look_around(context).await.unwrap_or(is_first);
            launch_late(context, is_first).await;
        }
        if !is_first && next(context).is_some() {
            pause(context, PATIENCE).await;
        }
        while let Some(granted) = next(context) {
            if let Err(error) = grant(context, granted).await {
                tracing::warn!(error = chain(&error), "nobody is admitted now");
                pause(context, RETRY_PAUSE).await;
                break;
            }
        }
    }
}

fn next(context: &Context) -> Option<Granted> {
    let slots = context.admitter.slots().clone();
    let now = context.ports.clock.now();
    context.admitter.flow().next(&slots, now)
}

/// Looks at the slots that there are; whether no other gateway is there longer than this one.
async fn look_around(context: &Context) -> Option<bool> {
    let members = context.ports.presence.members().await.ok()?;
    let gateways = members.iter().filter_map(|member| match member {
        Member::Gateway(gateway) => Some(gateway.gateway),
        Member::Node(_) => None,
    });
    // Their ids say when they began.
    let first: Option<GatewayId> = gateways.min();
    let mut slots = BTreeMap::new();
    for node in members.into_iter().filter_map(waiting::into_node) {
        let is_open = !node.draining && node.not_ready.is_none();
        for label in node.labels {
            *slots.entry(label).or_default() += if is_open { node.slots } else { 0 };
        }
    }
    *context.admitter.slots() = slots;
    Some(first.is_none_or(|first| first >= context.gateway))
}

/// Stores an admission, and launches who was admitted; somebody else being faster is no failure.
async fn grant(context: &Context, granted: Granted) -> Result<(), AppendError> {
    let admitter = &context.admitter;
    let last = admitter.flow().last();
    let (sequence, previous) = last.map_or((0, None), |(sequence, hash)| (sequence, Some(hash)));
    let (subject, runs) = (granted.subject(), granted.runs().to_vec());
    let header = context.runs.header();
    let event = CloudEvent::new(header, "admission".to_owned(), previous, granted);
    let bytes = event
        .encode()
        .expect("a bounded number of ids fits an event");
    let append = Append {
        subject,
        guard: Guard::Last {
            filter: subject::ADMISSIONS.to_owned(),
            sequence,
        },
        id: event.id.to_string(),
        bytes: bytes.into(),
    };
    let mut applied = admitter.granted_applied.subscribe();
    let stored = match context.runs.log().append(append).await {
        Ok(stored) => {
            launch_all(context, runs).await;
            stored
        }
        Err(AppendError::Conflict { .. }) => sequence + 1,
        Err(error) => return Err(error),
    };
    // Decided on again only once it is known here.
    let seen = applied.wait_for(|&last| last >= stored);
    drop(tokio::time::timeout(APPLIED_PATIENCE, seen).await);
    Ok(())
}

async fn launch_all(context: &Context, runs: Vec<RunId>) {
    let launches = stream::iter(runs).map(|run| launch(context, run));
    let launched = launches.buffer_unordered(LAUNCHES_AT_A_TIME);
    launched.for_each(|()| async {}).await;
}

/// Whoever does not get this done leaves it to [`launch_late`].
async fn launch(context: &Context, run: RunId) {
    match context.runs.handle(run, &Command::Admit, None).await {
        Ok(run) => context
            .metrics
            .count_launch(run.launched.event.placement.class),
        Err(HandleError::Rejected {
            rejection: Rejection::Ended,
            ..
        }) => (),
        Err(error) => {
            tracing::warn!(%run, error = chain(&error), "an admitted run is not launched yet");
        }
    }
}

/// Launches who was admitted by a gateway that did not get that far.
async fn launch_late(context: &Context, is_first: bool) {
    let patience = if is_first {
        LAUNCH_PATIENCE
    } else {
        LAUNCH_PATIENCE * 2
    };
    let before = context.ports.clock.now() - patience;
    let late = context.admitter.flow().not_launched(before);
    launch_all(context, late).await;
}

/// Waits, but not beyond the end of the gateway.
async fn pause(context: &Context, duration: Duration) {
    let until = Instant::now() + duration;
    context
        .shutdown
        .run_until_cancelled(tokio::time::sleep_until(until))
        .await;
}
