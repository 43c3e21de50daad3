//! Dead letters: finds them in the log, requeues and purges them.

use aod_api::dead_letters::{AttemptView, DeadLetterState, DeadLetterSummary, DeadLetterView};
use aod_domain::artifacts::named_by_launch;
use aod_domain::dead_letter::{self, Command, Event, State, decide};
use aod_domain::error_code::ErrorCode;
use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{self, DeadLetterReason, Run, RunError, Work};
use aod_domain::subject;
use aod_ports::event_log::StoredEvent;
use aod_services::pages::Pages;
use aod_services::writer::catch_up;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::files::deleted_artifacts;
use crate::reading;
use crate::reading::views::Seen;

/// Maximum number of events of one dead letter: it is purged once and requeued once.
const EVENTS_MAX: usize = 2;

/// A dead letter and its state.
pub(crate) struct DeadLetter {
    seen: Seen,
    reason: DeadLetterReason,
    stored: Vec<StoredEvent>,
    letter: dead_letter::DeadLetter,
}

/// The dead letter of `id`, or 404.
pub(crate) async fn find(context: &Context, id: RunId) -> Result<DeadLetter> {
    let log = context.runs.log();
    let stored = Pages::new(log.as_ref(), subject::run_state(id), 0)
        .rest()
        .await?;
    let seen = Seen::replay(id, &stored).map_err(|error| reading::damaged(id, error))?;
    let unknown = |text: String| Error::new(ErrorCode::UnknownDeadLetter, text);
    let seen = seen.ok_or_else(|| unknown(reading::unknown_text(&id.to_string())))?;
    let ended = seen.run.ended();
    let reason = ended
        .and_then(|ended| ended.event.dead_letter())
        .ok_or_else(|| unknown(format!("{id} is not a dead letter")))?;
    let tenant = seen.run.launched.event.tenant.clone();
    let mut letter = dead_letter::DeadLetter::new(tenant, id);
    catch_up(log.as_ref(), &mut letter).await?;
    Ok(DeadLetter {
        seen,
        reason,
        stored,
        letter,
    })
}

/// The events of the dead letter `id`.
pub(crate) async fn events(context: &Context, id: RunId) -> Result<Vec<Recorded<Event>>> {
    let filter = subject::dead_letter(id);
    let stored = context.runs.log().read(&filter, 0, EVENTS_MAX).await?;
    let decoded: Result<Vec<_>, _> = stored.iter().map(StoredEvent::decode::<Event>).collect();
    decoded.map_err(|error| {
        let text = format!("the events of the dead letter {id} are damaged");
        Error::new(ErrorCode::Internal, text).because(error)
    })
}

impl DeadLetter {
    pub(crate) fn run(&self) -> &Run {
        &self.seen.run
    }

    /// The sequence of its last event; 0 without one.
    pub(crate) fn sequence(&self) -> u64 {
        self.letter.sequence()
    }

    /// Launches its request as a new run, once. Returns the new run and the sequence of the `requeued` event.
    pub(crate) async fn requeue(self, context: &Context, by: &str) -> Result<(Run, u64)> {
        let id = self.run().id;
        if let Work::Build { name, .. } = &self.run().launched.event.work {
            let text = format!(
                "{id} is a build, which cannot be requeued: register the capsule {name} again"
            );
            return Err(Error::malformed(text));
        }
        context.admit_root().await?;
        let launched = dead_letter::launch(self.run(), by, context.ports.clock.now());
        let what = format!("the record of {id}");
        deleted_artifacts::renew(context, &what, named_by_launch(&launched)).await?;
        let class = launched.placement.class;
        context.queues.ask(context, &launched.placement).await?;
        // The id of the new run is fixed: a retry after a failure joins this run.
        let launch = run::Command::Launch(Box::new(launched));
        let requeued_as = dead_letter::requeued_as(id);
        let run = context.runs.handle(requeued_as, &launch, None).await?;
        context.metrics.count_launch(class);
        let requested_by = by.to_owned();
        let requeue = Command::Requeue { requested_by };
        let recorded = self.record(context, &requeue).await?;
        Ok((run, recorded.sequence()))
    }

    /// Purges the dead letter.
    pub(crate) async fn purge(self, context: &Context, by: &str) -> Result<Self> {
        let requested_by = by.to_owned();
        self.record(context, &Command::Purge { requested_by }).await
    }

    async fn record(mut self, context: &Context, command: &Command) -> Result<Self> {
        let writer = context.runs.writer();
        let decide = |letter: &dead_letter::DeadLetter, _| {
            Ok::<_, std::convert::Infallible>(decide(letter, command))
        };
        writer.change(&mut self.letter, decide).await?;
        Ok(self)
    }

    /// The dead letter without the output of its containers.
    pub(crate) fn view(&self) -> DeadLetterView {
        let (dead_letter, requeued_as) = match self.letter.state {
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

/// The attempts of a run and how they ended.
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
                node: lease.holder.node(),
                leased_at: recorded.time,
                ended_at: None,
                error: None,
            });
        }
    }
    attempts
}
