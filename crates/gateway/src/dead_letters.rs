//! Dead letters: found in the log, launched anew, or done with.

use aod_api::dead_letters::{AttemptView, DeadLetterState, DeadLetterSummary, DeadLetterView};
use aod_domain::artifacts::named_by;
use aod_domain::dead_letter::{self, Command, Event, State, decide};
use aod_domain::error_code::ErrorCode;
use aod_domain::event::{CloudEvent, Recorded};
use aod_domain::id::RunId;
use aod_domain::run::{self, DeadLetterReason, Run, RunError, Work};
use aod_domain::subject;
use aod_domain::tenant::Tenant;
use aod_ports::event_log::{Append, AppendError, Guard, StoredEvent};

use crate::context::Context;
use crate::gone;
use crate::http::error::{ApiError, ApiResult};
use crate::reading::{self, RUN_EVENTS_MAX};
use crate::views::{Seen, node_of};

/// Events about one dead letter: it is purged once and requeued once.
const EVENTS_MAX: usize = 2;

/// How often a decision is taken anew because another operator was faster; each time one of those
/// events was stored.
const DECIDE_ATTEMPTS_MAX: usize = EVENTS_MAX + 1;

/// A dead letter and what was done about it.
pub(crate) struct DeadLetter {
    seen: Seen,
    reason: DeadLetterReason,
    stored: Vec<StoredEvent>,
    state: State,
    /// The last event about it; 0 if there is none.
    pub(crate) sequence: u64,
}

/// The dead letter of `id`, or 404.
pub(crate) async fn find(context: &Context, id: RunId) -> ApiResult<DeadLetter> {
    let log = context.runs.log();
    let filter = subject::run_state(id);
    let stored = log.read(&filter, 0, RUN_EVENTS_MAX).await?;
    let seen = Seen::replay(id, &stored).map_err(|error| reading::damaged(id, error))?;
    let unknown = |text: String| ApiError::new(ErrorCode::UnknownDeadLetter, text);
    let seen = seen.ok_or_else(|| unknown(reading::unknown_text(&id.to_string())))?;
    let ended = seen.run.ended();
    let reason = ended
        .and_then(|ended| ended.event.dead_letter())
        .ok_or_else(|| unknown(format!("{id} was not given up")))?;
    let (state, sequence) = state(context, id).await?;
    Ok(DeadLetter {
        seen,
        reason,
        stored,
        state,
        sequence,
    })
}

/// What operators did about the dead letter of `id`.
pub(crate) async fn events(context: &Context, id: RunId) -> ApiResult<Vec<Recorded<Event>>> {
    let filter = subject::dead_letter(id);
    let stored = context.runs.log().read(&filter, 0, EVENTS_MAX).await?;
    let decoded: Result<Vec<_>, _> = stored.iter().map(StoredEvent::decode::<Event>).collect();
    decoded.map_err(|error| {
        let text = format!("the events about the dead letter {id} are damaged");
        ApiError::new(ErrorCode::Internal, text).because(error)
    })
}

async fn state(context: &Context, id: RunId) -> ApiResult<(State, u64)> {
    let events = events(context, id).await?;
    let sequence = events.last().map_or(0, |event| event.sequence);
    Ok((State::replay(&events), sequence))
}

impl DeadLetter {
    pub(crate) fn run(&self) -> &Run {
        &self.seen.run
    }

    /// Launches its request as another run, once. Answers with that run and the place of the event
    /// that says so.
    pub(crate) async fn requeue(self, context: &Context, by: &str) -> ApiResult<(Run, u64)> {
        if let Work::Build { name, .. } = &self.run().launched.event.work {
            let text = format!("the image of {name} is built again by registering it again");
            return Err(ApiError::malformed(text));
        }
        context.admit_root().await?;
        let id = self.run().id;
        let launched = dead_letter::launch(self.run(), by, context.ports.clock.now());
        let event = run::Event::Launched(Box::new(launched.clone()));
        let what = format!("what is recorded of {id}");
        gone::renew(context, &what, named_by(&event)).await?;
        let class = launched.placement.class;
        context.queues.ask(context, &launched.placement).await?;
        // First the run, which is always the same: whoever asks again after a failure joins it.
        let launch = run::Command::Launch(Box::new(launched));
        let anew = dead_letter::requeued_as(id);
        let run = context.runs.handle(anew, &launch, None).await?;
        context.metrics.count_launch(class);
        let requested_by = by.to_owned();
        let requeue = Command::Requeue { requested_by };
        let told = self.tell(context, &requeue).await?;
        Ok((run, told.sequence))
    }

    /// Says that nothing more is to be done about it.
    pub(crate) async fn purge(self, context: &Context, by: &str) -> ApiResult<Self> {
        let requested_by = by.to_owned();
        self.tell(context, &Command::Purge { requested_by }).await
    }

    async fn tell(mut self, context: &Context, command: &Command) -> ApiResult<Self> {
        let id = self.run().id;
        for _ in 0..DECIDE_ATTEMPTS_MAX {
            let Some(event) = decide(id, self.state, command) else {
                return Ok(self);
            };
            let tenant = &self.run().launched.event.tenant;
            match append(context, tenant, id, self.sequence, event).await {
                Ok(_) | Err(AppendError::Conflict { .. }) => (),
                Err(error) => return Err(error.into()),
            }
            (self.state, self.sequence) = state(context, id).await?;
        }
        let text = "others keep changing the dead letter";
        Err(ApiError::new(ErrorCode::BrokerUnavailable, text))
    }

    /// Everything about it but what its containers wrote.
    pub(crate) fn view(&self) -> DeadLetterView {
        let (dead_letter, requeued_as) = match self.state {
            State::Open => (DeadLetterState::Open, None),
            State::Purged => (DeadLetterState::Purged, None),
            State::Requeued(run) => (DeadLetterState::Requeued, Some(run)),
        };
        let deliveries = self.run().deliveries.last;
        DeadLetterView {
            summary: DeadLetterSummary {
                run: self.seen.summary(),
                reason: self.reason,
                dead_letter,
                requeued_as,
            },
            deliveries: deliveries.map_or(0, |last| last.delivery),
            attempts: attempts(&self.stored),
            last_lines: Vec::new(),
        }
    }
}

async fn append(
    context: &Context,
    tenant: &Tenant,
    id: RunId,
    sequence: u64,
    event: Event,
) -> Result<u64, AppendError> {
    let subject = event.subject(tenant);
    let filter = subject::dead_letter(id);
    let cloud_event = CloudEvent::new(context.runs.header(), id.to_string(), None, event);
    let append = Append::of(subject, Guard::Last { filter, sequence }, &cloud_event);
    let append = append.expect("ids and a name fit an event");
    context.runs.log().append(append).await
}

/// Each attempt of a run with its end.
fn attempts(stored: &[StoredEvent]) -> Vec<AttemptView> {
    let mut attempts: Vec<AttemptView> = Vec::new();
    for event in stored {
        let Ok(recorded) = event.decode::<run::Event>() else {
            continue;
        };
        let error = match &recorded.event {
            run::Event::Leased(_) => Some(RunError::replaced()),
            run::Event::AttemptLost(lost) => Some(lost.error.clone()),
            run::Event::AttemptFailed(failed) => Some(failed.error.clone()),
            run::Event::Ended(ended) => ended.error.clone(),
            _ => continue,
        };
        let last = attempts.last_mut();
        if let Some(open) = last.filter(|attempt| attempt.ended_at.is_none()) {
            open.ended_at = Some(recorded.time);
            open.error = error.map(Into::into);
        }
        if let run::Event::Leased(lease) = &recorded.event {
            attempts.push(AttemptView {
                attempt: lease.attempt,
                node: node_of(&lease.holder),
                leased_at: recorded.time,
                ended_at: None,
                error: None,
            });
        }
    }
    attempts
}
