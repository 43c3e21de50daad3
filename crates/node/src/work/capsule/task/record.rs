//! Reads and stores what a task records: events of ended steps, their outputs, and snapshots of the workspace.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::run::{Command, Event, Payload, Run, RunError, Snapshot, StepEnded};
use aod_domain::subject;
use aod_domain::task::plan::{Ending, Position};
use aod_domain::task::{self, Outputs, Progress};
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_services::error::chain;
use aod_services::pages::Pages;
use aod_services::runs::HandleError;
use bytes::Bytes;
use futures::TryStreamExt as _;
use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde_json::{Map, json};
use tracing::warn;

use super::step::Done;
use super::{Sandbox, Task};
use crate::attempt::Attempt;
use crate::files::payload::load_payload;
use crate::files::snapshot::{self, SnapshotError};

/// Pause between two tries to append an event.
const APPEND_RETRY: Duration = Duration::from_millis(250);

/// The name of a workflow in problems.
const WORKFLOW: &str = "workflow.yaml";

/// The task of `attempt` with the steps that have ended.
pub(super) async fn load(attempt: &Attempt, workflow: Digest) -> Result<Task, RunError> {
    let artifacts = attempt.shared.ports.artifacts.as_ref();
    let yaml = bytes(artifacts, workflow).await?;
    let outcome = task::read(WORKFLOW, &yaml, false);
    let workflow = outcome.value.ok_or_else(|| {
        let problems: Vec<_> = outcome.problems.iter().map(ToString::to_string).collect();
        RunError::new(ErrorCode::CapsuleInvalid, problems.join("; "))
    })?;
    let payload = load_payload(&attempt.run.launched.event.payload, artifacts).await;
    let payload = payload.map_err(|error| unavailable(&error))?;
    let none = Map::new();
    let mut task = Task {
        progress: Progress::new(workflow, payload.as_object().unwrap_or(&none)),
        run: attempt.run.clone(),
        snapshot: None,
        reason: None,
    };
    if task.run.steps > 0 {
        recall(&mut task, attempt).await?;
    }
    Ok(task)
}

/// Applies the recorded ends of steps.
async fn recall(task: &mut Task, attempt: &Attempt) -> Result<(), RunError> {
    let shared = &attempt.shared;
    let filter = subject::run_state(attempt.run.id);
    let mut pages = Pages::new(shared.runs.log().as_ref(), filter, 0);
    let mut count = 0;
    // Steps that ran at the same time count when the last of them is recorded.
    let mut group = Vec::new();
    loop {
        let page = pages.next().await.map_err(|error| unavailable(&error))?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            let recorded = stored.decode::<Event>();
            let recorded = recorded.map_err(|error| unavailable(&error))?;
            let step = match recorded.event {
                Event::StepEnded(step) => step,
                // The request has a retry: what failed runs again.
                Event::AttemptFailed(_) => {
                    group.clear();
                    task.progress.retry();
                    continue;
                }
                _ => continue,
            };
            let outputs = match &step.outputs {
                Some(Payload::Artifact { digest, .. }) => {
                    let bytes = bytes(shared.ports.artifacts.as_ref(), *digest).await?;
                    serde_json::from_slice(&bytes).map_err(|error| unavailable(&error))?
                }
                _ => Outputs::new(),
            };
            count += 1;
            let is_waiting = step.started_at.is_some() && step.snapshot.is_none();
            task.snapshot = step.snapshot.or(task.snapshot);
            task.reason = step.error.map(|error| error.message).or(task.reason.take());
            group.push((step.position, step.ending, outputs));
            if !is_waiting {
                for (position, ending, outputs) in group.drain(..) {
                    task.progress.record(position, ending, outputs);
                }
            }
        }
    }
    if count == attempt.run.steps {
        return Ok(());
    }
    let text = format!(
        "the log has {count} ended steps of the task; expected {}",
        attempt.run.steps
    );
    Err(RunError::new(ErrorCode::InputUnavailable, text))
}

async fn bytes(artifacts: &dyn ArtifactStore, digest: Digest) -> Result<Vec<u8>, RunError> {
    let read = async {
        let content = artifacts.get_stream(digest, None).await?;
        let pieces: Vec<Bytes> = content.bytes.try_collect().await?;
        Ok::<_, StoreError>(pieces.concat())
    };
    read.await.map_err(|error| unavailable(&error))
}

fn unavailable(error: &dyn std::error::Error) -> RunError {
    RunError::new(ErrorCode::InputUnavailable, chain(error))
}

/// Stores what the steps of one attempt leave.
pub(super) struct Recorder<'a> {
    sandbox: Sandbox<'a>,
}

impl<'a> Recorder<'a> {
    pub(super) const fn new(sandbox: Sandbox<'a>) -> Self {
        Self { sandbox }
    }

    pub(super) const fn attempt(&self) -> u32 {
        self.sandbox.attempt.number
    }

    pub(super) fn now(&self) -> Timestamp {
        self.sandbox.attempt.shared.runs.clock().now()
    }

    /// The outputs without the secrets of the task. Also later steps see only these: a node that takes the task over has
    /// no others.
    pub(super) fn redacted(&self, outputs: &Outputs) -> Outputs {
        let redacted = self.sandbox.redaction.json(json!(outputs));
        serde_json::from_value(redacted).unwrap_or_default()
    }

    /// The error without the secrets of the task, reduced to fit an event.
    pub(super) fn error(&self, error: RunError) -> RunError {
        self.sandbox.redaction.error(error).bounded()
    }

    /// Stores outputs; none if there are none.
    pub(super) async fn outputs(&self, outputs: &Outputs) -> Result<Option<Payload>, RunError> {
        if outputs.is_empty() {
            return Ok(None);
        }
        let piece = Bytes::from(json!(outputs).to_string());
        let artifacts = &self.sandbox.attempt.shared.ports.artifacts;
        let stored = artifacts
            .put_stream(stream::iter([Ok(piece)]).boxed())
            .await;
        let stored = stored.map_err(|error| not_stored(&error))?;
        Ok(Some(Payload::Artifact {
            digest: stored.digest,
            size_bytes: stored.size_bytes,
        }))
    }

    /// Stores the workspace. No process runs meanwhile. An inner error: the workspace cannot be stored anywhere.
    pub(super) async fn snapshot(&self) -> Result<Result<Snapshot, String>, RunError> {
        let workspace: PathBuf = self.sandbox.paths.workspace.clone();
        let attempt = self.sandbox.attempt;
        let bytes_max = attempt.run.launched.event.resources.disk_bytes;
        let artifacts = Arc::clone(&attempt.shared.ports.artifacts);
        match snapshot::store(workspace, bytes_max, artifacts.as_ref()).await {
            Ok(snapshot) => Ok(Ok(snapshot)),
            Err(SnapshotError::Workspace(text)) => Ok(Err(text)),
            Err(error) => Err(not_stored(&error)),
        }
    }

    /// A step that failed while the disk of the node was full runs again, on another node.
    pub(super) fn ensure_disk(&self, done: &[(Position, Done)]) -> Result<(), RunError> {
        let mut endings = done.iter().map(|(_, done)| done.ending);
        let shared = &self.sandbox.attempt.shared;
        if endings.any(|ending| ending == Ending::Failed) {
            shared.host.disks.measure(shared.runs.clock().since_boot());
            if shared.host.disks.was_full(self.sandbox.began) {
                let text = "a step failed while the disk of its node was full";
                return Err(RunError::new(ErrorCode::RuntimeFailed, text));
            }
        }
        Ok(())
    }

    /// Appends the end of a step, and retries while the lease lasts. None if this attempt has lost its lease.
    pub(super) async fn append(&self, known: &Run, step: StepEnded) -> Option<Run> {
        let attempt = self.sandbox.attempt;
        let command = Command::EndStep(Box::new(step));
        let lost = attempt.lease.lost();
        let mut known = Some(known.clone());
        loop {
            let handled = attempt
                .shared
                .runs
                .handle(attempt.run.id, &command, known.take());
            match lost.run_until_cancelled(handled).await? {
                Ok(run) => return Some(run),
                Err(HandleError::Rejected { rejection, .. }) => {
                    warn!(%rejection, "the log rejected the end of a step");
                    attempt.lease.give_up();
                    return None;
                }
                Err(error) => warn!(error = %chain(&error), "event not stored; retrying"),
            }
            tokio::time::sleep(APPEND_RETRY).await;
        }
    }
}

fn not_stored(error: &dyn std::error::Error) -> RunError {
    RunError::new(ErrorCode::StoreUnavailable, chain(error))
}
