//! Notes on an attempt: told for people, awaited by nobody.
//!
//! Each costs the log a synced write, so only a phase that lasts is told: what happened in a
//! shorter one stands in the result's timings.

use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::event::CloudEvent;
use aod_domain::id::RunId;
use aod_domain::run::{Note, NoteKind, NotesSummary};
use aod_ports::event_log::{Append, Guard};
use aod_ports::program::spawn;
use aod_ports::runs::Runs;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::debug;

/// How long a phase lasts before it is told: a person who looks waits as long without minding, and the
/// quick calls of a busy cluster, which it would slow down further, take less.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// Phases waiting to be looked at; more are dropped, as only the last one counts.
const QUEUE_LENGTH: usize = 16;

/// What an attempt has come to.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Preparing(String),
    Running,
    Waiting(Option<RunId>),
    Resumed,
    Collecting,
}

/// Takes the phases of one attempt.
#[derive(Debug)]
pub(crate) struct Notes {
    phases: mpsc::Sender<Phase>,
    writer: JoinHandle<Option<NotesSummary>>,
}

impl Notes {
    pub(crate) fn start(runs: Runs, run: RunId, attempt: u32) -> Self {
        let (phases, receiver) = mpsc::channel(QUEUE_LENGTH);
        let writer = Writer {
            runs,
            run,
            attempt,
            summary: None,
        };
        Self {
            phases,
            writer: spawn(writer.run(receiver)),
        }
    }

    pub(crate) fn tell(&self, phase: Phase) {
        // A full queue means that phases change faster than they are worth telling.
        let _ = self.phases.try_send(phase);
    }

    /// What was told; a phase that has not lasted is dropped.
    pub(crate) async fn finish(self) -> Option<NotesSummary> {
        drop(self.phases);
        self.writer.await.unwrap_or(None)
    }
}

struct Writer {
    runs: Runs,
    run: RunId,
    attempt: u32,
    summary: Option<NotesSummary>,
}

impl Writer {
    async fn run(mut self, mut phases: mpsc::Receiver<Phase>) -> Option<NotesSummary> {
        let mut current = phases.recv().await;
        while let Some(phase) = current.take() {
            match tokio::time::timeout(TOLD_AFTER, phases.recv()).await {
                Ok(next) => current = next,
                Err(_) => {
                    self.write(phase).await;
                    current = phases.recv().await;
                }
            }
        }
        self.summary
    }

    async fn write(&mut self, phase: Phase) {
        let note = self.note(phase);
        let number = self
            .summary
            .as_ref()
            .map_or(1, |summary| summary.number + 1);
        let subject = note.subject(self.run);
        let previous = self.summary.as_ref().map(|summary| summary.hash);
        let event = CloudEvent::new(self.runs.header(), self.run.to_string(), previous, note);
        let Ok(bytes) = event.encode() else { return };
        let hash = Digest::of(&bytes);
        let append = Append {
            subject,
            guard: Guard::None,
            id: event.id.to_string(),
            bytes: bytes.into(),
        };
        match self.runs.log().append(append).await {
            Ok(_) => self.summary = Some(NotesSummary { number, hash }),
            Err(error) => debug!(run = %self.run, %error, "a note was not stored"),
        }
    }

    fn note(&self, phase: Phase) -> Note {
        let kind = |callee, text| NoteKind {
            attempt: self.attempt,
            number: self
                .summary
                .as_ref()
                .map_or(1, |summary| summary.number + 1),
            callee,
            text,
            previous: self.summary.as_ref().map(|summary| summary.hash),
        };
        match phase {
            Phase::Preparing(text) => Note::Preparing(kind(None, Some(text))),
            Phase::Running => Note::Running(kind(None, None)),
            Phase::Waiting(callee) => Note::Waiting(kind(callee, None)),
            Phase::Resumed => Note::Resumed(kind(None, None)),
            Phase::Collecting => Note::Collecting(kind(None, None)),
        }
    }
}
