//! Converts stored runs and events to the types of the API.

use aod_api::events::EventView;
use aod_api::files::FileView;
use aod_api::runs::{
    CancelView, EgressUsageView, ErrorView, LeftOutView, RunKind, RunResult, RunState, RunSummary,
    RunView, SpentView, TimingsView, UsageView,
};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::Recorded;
use aod_domain::id::{NodeId, RunId};
use aod_domain::run::{
    BrokenHistory, Ended, Event, FileEntry, Launched, Note, Outcome, Run, State, Work,
};
use aod_domain::subject::Subject;
use aod_ports::event_log::StoredEvent;
use aod_services::runs::DamagedRun;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};

/// A run with the last note of its current attempt.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) run: Run,
    note: Option<Note>,
    /// The node of the current or last attempt.
    node: Option<NodeId>,
    /// The start of that attempt.
    leased_at: Option<Timestamp>,
}

impl From<Run> for Seen {
    fn from(run: Run) -> Self {
        let lease = run.lease();
        Self {
            node: lease.and_then(|lease| lease.event.holder.node()),
            leased_at: lease.map(|lease| lease.time),
            note: None,
            run,
        }
    }
}

impl Seen {
    /// Replays all stored events of `id`, including notes; none if there are no events.
    pub(crate) fn replay(id: RunId, stored: &[StoredEvent]) -> Result<Option<Self>, DamagedRun> {
        let mut seen: Option<Self> = None;
        for event in stored {
            Self::take(&mut seen, id, event)?;
        }
        Ok(seen)
    }

    /// Applies the next stored event.
    pub(crate) fn take(
        seen: &mut Option<Self>,
        id: RunId,
        stored: &StoredEvent,
    ) -> Result<(), DamagedRun> {
        if Subject::is_state(&stored.subject) {
            let recorded = stored.decode::<Event>()?;
            match seen {
                Some(seen) => seen.apply(recorded)?,
                None => *seen = Run::replay(id, [recorded])?.map(Self::from),
            }
        } else if let (Some(seen), Ok(note)) = (seen, stored.decode::<Note>()) {
            // Nothing depends on notes: skip notes of newer versions of AOD, and late notes of earlier attempts.
            let is_current = seen.run.holds(note.event.kind().attempt);
            if is_current && State::begun_by(&note.event).is_some() {
                seen.note = Some(note.event);
            }
        }
        Ok(())
    }

    fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), BrokenHistory> {
        if let Event::Leased(lease) = &recorded.event {
            self.node = lease.holder.node();
            self.leased_at = Some(recorded.time);
        }
        self.run.apply(recorded)
    }

    pub(crate) fn state(&self) -> RunState {
        State::of(&self.run, self.note.as_ref()).into()
    }

    /// The last note of the current attempt that begins a state.
    pub(crate) fn current_note(&self) -> Option<&Note> {
        let note = self.note.as_ref();
        note.filter(|note| self.run.holds(note.kind().attempt))
    }

    pub(crate) fn summary(&self) -> RunSummary {
        let run = &self.run;
        let launched = &run.launched.event;
        let ended = run.ended();
        RunSummary {
            id: run.id,
            root: run.id.root(),
            tenant: launched.tenant.clone(),
            parent: launched.parent.as_ref().map(|parent| parent.run),
            kind: kind_of(&launched.work),
            capsule: launched.work.name().to_string(),
            state: self.state(),
            attempts: run.attempts,
            node: self.node,
            requested_at: run.launched.time,
            leased_at: self.leased_at,
            ended_at: ended.map(|ended| ended.time),
            requested_by: launched.requested_by.clone(),
            cost_usd: None,
            labels: launched.labels.clone(),
            error: ended
                .and_then(|ended| ended.event.error.clone())
                .map(ErrorView::from),
        }
    }

    /// The view of the run; `arguments` is its payload.
    pub(crate) fn view(&self, arguments: Value, result: Option<RunResult>) -> RunView {
        let run = &self.run;
        let launched = &run.launched.event;
        RunView {
            summary: self.summary(),
            pool: launched.placement.pool.clone(),
            requires: (&launched.placement.requirements).into(),
            deadline: launched.deadline,
            timeout_seconds: launched.resources.timeout_seconds,
            limits: launched.limits.into(),
            budget: launched.budget.into(),
            spending: None,
            queued_until: run.queued_until(),
            retries: launched.retries.into(),
            failed: run.failed.into(),
            arguments,
            inputs: input_files(run.id, launched),
            attempts_lost: run.attempts_lost,
            refusals: run.refusals.iter().map(Into::into).collect(),
            deliveries: run.deliveries.last.map_or(0, |last| last.delivery),
            requeued_from: launched.requeued_from,
            rerun_of: launched.rerun.as_ref().and_then(|rerun| rerun.of),
            reused_from: launched.reuses.map(|reuses| reuses.run),
            waits_for: None,
            cancel: run.cancel.as_ref().map(|cancel| CancelView {
                requested_by: cancel.requested_by.clone(),
                reason: cancel.reason.clone(),
            }),
            sequence: run.last.sequence,
            deleted: Vec::new(),
            result,
        }
    }
}

pub(crate) fn kind_of(work: &Work) -> RunKind {
    match work {
        Work::Capsule { .. } => RunKind::Capsule,
        Work::Build { .. } => RunKind::Build,
    }
}

/// The result of a run; `output` is its output.
pub(crate) fn result(
    run: RunId,
    requested_at: Timestamp,
    ended: &Recorded<Ended>,
    output: Option<Value>,
) -> RunResult {
    let event = &ended.event;
    RunResult {
        id: run,
        state: State::from(event.outcome).into(),
        success: event.outcome == Outcome::Succeeded,
        output,
        files: files(run, &event.files, "files"),
        left_out: event.left_out.clone().map(LeftOutView::from),
        error: event.error.clone().map(ErrorView::from),
        exit: event.exit,
        attempt: event.attempt,
        timings: timings(requested_at, ended),
        usage: UsageView {
            input_bytes: event.usage.input_bytes,
            fetched_bytes: event.usage.fetched_bytes,
            output_bytes: event.usage.output_bytes,
            calls: event.usage.calls,
            models: event.usage.models.as_ref().map(SpentView::from),
            egress: event.usage.egress.map(|egress| EgressUsageView {
                connections: egress.connections,
                refused: egress.refused,
                bytes_sent: egress.bytes_sent,
                bytes_received: egress.bytes_received,
            }),
        },
        hash: ended.hash,
        sequence: ended.sequence,
    }
}

pub(crate) fn timings(requested_at: Timestamp, ended: &Recorded<Ended>) -> TimingsView {
    let timings = &ended.event.timings;
    TimingsView {
        requested_at,
        leased_at: timings.leased_at,
        started_at: timings.started_at,
        exited_at: timings.exited_at,
        ended_at: ended.time,
        waiting_milliseconds: timings.waiting_ms,
    }
}

fn input_files(run: RunId, launched: &Launched) -> Vec<FileView> {
    files(run, &launched.files, "inputs")
}

fn files(run: RunId, files: &[FileEntry], place: &str) -> Vec<FileView> {
    let view = |file: &FileEntry| FileView {
        name: file.name.clone(),
        digest: file.digest,
        size_bytes: file.size_bytes,
        url: format!(
            "/v1/runs/{run}/{place}/{}",
            percent_encoded(file.name.as_str())
        ),
    };
    files.iter().map(view).collect()
}

/// `path` with all characters escaped that have a meaning in a URL, except slashes.
fn percent_encoded(path: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("writing to memory does not fail");
        }
    }
    text
}

/// The envelope of any event.
#[derive(Deserialize)]
struct Envelope {
    id: String,
    source: String,
    time: Timestamp,
    #[serde(rename = "type")]
    kind: String,
    previoushash: Option<Digest>,
    data: Value,
}

/// The view of a stored event.
pub(crate) fn event(stored: &StoredEvent) -> Result<EventView> {
    let envelope: Envelope = serde_json::from_slice(&stored.bytes).map_err(|error| {
        let detail = format!("event {} is unreadable", stored.sequence);
        Error::new(ErrorCode::Internal, detail).because(error)
    })?;
    let previous = envelope.previoushash.or_else(|| {
        let text = envelope.data.get("previous").and_then(Value::as_str);
        text.and_then(|text| text.parse().ok())
    });
    Ok(EventView {
        sequence: stored.sequence,
        id: envelope.id,
        kind: envelope.kind,
        time: envelope.time,
        source: envelope.source,
        run: Subject::run_of(&stored.subject),
        hash: Digest::of(&stored.bytes),
        previous,
        data: envelope.data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_escaped_in_urls() {
        assert_eq!(
            percent_encoded("a b/ü?#*>.pdf"),
            "a%20b/%C3%BC%3F%23%2A%3E.pdf"
        );
    }
}
