//! Runs of the log as people see them.

use aod_api::events::EventView;
use aod_api::files::FileView;
use aod_api::runs::{
    CancelView, EgressUsageView, ErrorView, RunKind, RunResult, RunState, RunSummary, RunView,
    SpentView, TimingsView, UsageView,
};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::Recorded;
use aod_domain::id::{NodeId, RunId};
use aod_domain::run::{
    BrokenHistory, Ended, Event, FileEntry, Holder, Launched, Note, Outcome, Phase, Run, Work,
};
use aod_domain::subject::Subject;
use aod_ports::event_log::StoredEvent;
use aod_ports::runs::DamagedRun;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::http::error::{ApiError, ApiResult};

/// A run and the last that its current attempt told of itself.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) run: Run,
    pub(crate) note: Option<Note>,
    /// The node of the current or last attempt.
    node: Option<NodeId>,
}

impl From<Run> for Seen {
    fn from(run: Run) -> Self {
        let node = run.lease().and_then(|lease| node_of(&lease.event.holder));
        Self {
            run,
            note: None,
            node,
        }
    }
}

impl Seen {
    /// Reads all stored events of `id`, notes included; none if there are none.
    pub(crate) fn replay(id: RunId, stored: &[StoredEvent]) -> Result<Option<Self>, DamagedRun> {
        let mut seen: Option<Self> = None;
        for event in stored {
            Self::take(&mut seen, id, event)?;
        }
        Ok(seen)
    }

    /// Takes the next stored event in.
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
            // Nothing depends on notes: one of a later version of ours is passed over, and so is one of a
            // former attempt that comes late.
            let is_current = seen.run.holds(note.event.kind().attempt);
            if is_current && state_of_note(&note.event).is_some() {
                seen.note = Some(note.event);
            }
        }
        Ok(())
    }

    fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), BrokenHistory> {
        if let Event::Leased(lease) = &recorded.event {
            self.node = node_of(&lease.holder);
        }
        self.run.apply(recorded)
    }

    pub(crate) fn state(&self) -> RunState {
        match &self.run.phase {
            Phase::Requested => RunState::Requested,
            Phase::Queued => RunState::Queued,
            Phase::Ended(ended) => ended.event.outcome.into(),
            Phase::Leased(lease) => match &self.note {
                Some(note) if note.kind().attempt == lease.event.attempt => state_of_note(note),
                _ => None,
            }
            .unwrap_or(RunState::Leased),
        }
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
            ended_at: ended.map(|ended| ended.time),
            requested_by: launched.requested_by.clone(),
            labels: launched.labels.clone(),
            error: ended
                .and_then(|ended| ended.event.error.clone())
                .map(ErrorView::from),
        }
    }

    /// Everything about the run; `arguments` is its payload, wherever that was.
    pub(crate) fn view(&self, arguments: Value, result: Option<RunResult>) -> RunView {
        let run = &self.run;
        let launched = &run.launched.event;
        RunView {
            summary: self.summary(),
            label: launched.placement.label.clone(),
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
            collected: Vec::new(),
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

pub(crate) fn node_of(holder: &Holder) -> Option<NodeId> {
    match holder {
        Holder::Node { node, .. } => Some(*node),
        Holder::Gateway { .. } => None,
    }
}

/// The state that begins with a note; none for one that tells of something else.
pub(crate) const fn state_of_note(note: &Note) -> Option<RunState> {
    match note {
        Note::Preparing(_) => Some(RunState::Preparing),
        Note::Running(_) | Note::Resumed(_) => Some(RunState::Running),
        Note::Waiting(_) => Some(RunState::Waiting),
        Note::Collecting(_) => Some(RunState::Collecting),
        Note::CallRefused(_) | Note::Egress(_) | Note::EgressRefused(_) => None,
    }
}

/// The result of a run; `output` is what it returned, wherever that was.
pub(crate) fn result(
    run: RunId,
    requested_at: Timestamp,
    ended: &Recorded<Ended>,
    output: Option<Value>,
) -> RunResult {
    let event = &ended.event;
    RunResult {
        id: run,
        state: event.outcome.into(),
        success: event.outcome == Outcome::Succeeded,
        output,
        files: files(run, &event.files, "files"),
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

/// `path` with everything escaped that has a meaning in a URL; slashes stay.
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

/// The envelope of any event, whatever it holds.
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

/// A stored event as people see it.
pub(crate) fn event(stored: &StoredEvent) -> ApiResult<EventView> {
    let envelope: Envelope = serde_json::from_slice(&stored.bytes).map_err(|error| {
        let detail = format!("the event {} cannot be read", stored.sequence);
        ApiError::new(ErrorCode::Internal, detail).because(error)
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
    fn names_of_files_are_escaped_in_urls() {
        assert_eq!(
            percent_encoded("a b/ü?#*>.pdf"),
            "a%20b/%C3%BC%3F%23%2A%3E.pdf"
        );
    }
}
