//! Notes on an attempt: told for people, awaited by nobody.
//!
//! Each costs the log a synced write, so only a phase that lasts is told: what happened in a
//! shorter one stands in the result's timings. A call that was refused is told always.

use std::time::Duration;

use aod_api::problem::Problem;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::CloudEvent;
use aod_domain::id::RunId;
use aod_domain::run::{CallRefused, Note, NoteKind, NotesSummary, REFUSED_TARGET_LENGTH_MAX};
use aod_ports::event_log::{Append, Guard};
use aod_ports::program::spawn;
use aod_ports::runs::Runs;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
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

/// Refused calls of one attempt that are told one by one; how many more there were is told at its end.
const REFUSALS_TOLD_MAX: u32 = 100;

/// Refusals for want of a permission; others say that a call was made wrongly.
const REFUSALS: [ErrorCode; 6] = [
    ErrorCode::TargetNotAllowed,
    ErrorCode::UnknownCapsule,
    ErrorCode::CallCycle,
    ErrorCode::CallTooDeep,
    ErrorCode::CallsExhausted,
    ErrorCode::TooManyCalls,
];

/// What is told of an attempt.
#[derive(Debug)]
enum Message {
    Phase(Phase),
    Refused(Refused),
}

/// A call that was refused.
#[derive(Debug)]
struct Refused {
    target: String,
    code: String,
    text: String,
}

/// Takes the phases and the refused calls of one attempt.
#[derive(Debug)]
pub(crate) struct Notes {
    messages: mpsc::Sender<Message>,
    writer: JoinHandle<Option<NotesSummary>>,
}

impl Notes {
    pub(crate) fn start(runs: Runs, run: RunId, attempt: u32) -> Self {
        let (messages, receiver) = mpsc::channel(QUEUE_LENGTH);
        let writer = Writer {
            runs,
            run,
            attempt,
            summary: None,
            refused: 0,
        };
        Self {
            messages,
            writer: spawn(writer.run(receiver)),
        }
    }

    pub(crate) fn tell(&self, phase: Phase) {
        // A full queue means that phases change faster than they are worth telling.
        let _ = self.messages.try_send(Message::Phase(phase));
    }

    /// Where refused calls are told, until the notes are finished.
    pub(crate) fn refusals(&self) -> Refusals {
        Refusals(self.messages.downgrade())
    }

    /// What was told; a phase that has not lasted is dropped.
    pub(crate) async fn finish(self) -> Option<NotesSummary> {
        drop(self.messages);
        self.writer.await.unwrap_or(None)
    }
}

/// Takes the refused calls of one attempt.
#[derive(Debug)]
pub(crate) struct Refusals(mpsc::WeakSender<Message>);

impl Refusals {
    /// Nobody is told.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn untold() -> Self {
        Self(mpsc::channel(1).0.downgrade())
    }

    /// Tells that a call of `target` was refused, if it was for want of a permission.
    pub(crate) async fn tell(&self, target: &str, problem: &Problem) {
        let is_told = REFUSALS.iter().any(|code| code.as_str() == problem.code);
        let Some(messages) = self.0.upgrade().filter(|_| is_told) else {
            return;
        };
        let refused = Refused {
            target: target.chars().take(REFUSED_TARGET_LENGTH_MAX).collect(),
            code: problem.code.clone(),
            text: problem.detail.clone(),
        };
        // An error means that the attempt is over, and with it its notes.
        let _ = messages.send(Message::Refused(refused)).await;
    }
}

struct Writer {
    runs: Runs,
    run: RunId,
    attempt: u32,
    summary: Option<NotesSummary>,
    /// Refused calls so far.
    refused: u32,
}

impl Writer {
    async fn run(mut self, mut messages: mpsc::Receiver<Message>) -> Option<NotesSummary> {
        let mut current: Option<(Phase, Instant)> = None;
        let mut untold = None;
        loop {
            let next = match &current {
                None => messages.recv().await,
                Some((_, since)) => {
                    let told_at = *since + TOLD_AFTER;
                    match tokio::time::timeout_at(told_at, messages.recv()).await {
                        Ok(next) => next,
                        Err(_) => {
                            if let Some((phase, _)) = current.take() {
                                self.write(self.phase_note(phase)).await;
                            }
                            continue;
                        }
                    }
                }
            };
            match next {
                Some(Message::Phase(phase)) => current = Some((phase, Instant::now())),
                Some(Message::Refused(refused)) => {
                    self.refused += 1;
                    if self.refused <= REFUSALS_TOLD_MAX {
                        self.write(self.refusal_note(refused)).await;
                    } else {
                        untold = Some(refused);
                    }
                }
                None => break,
            }
        }
        if let Some(mut last) = untold {
            let count = self.refused - REFUSALS_TOLD_MAX;
            last.text = format!("the last of {count} refusals more: {}", last.text);
            self.write(self.refusal_note(last)).await;
        }
        self.summary
    }

    async fn write(&mut self, note: Note) {
        let number = note.kind().number;
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

    fn kind(&self, callee: Option<RunId>, text: Option<String>) -> NoteKind {
        NoteKind {
            attempt: self.attempt,
            number: self
                .summary
                .as_ref()
                .map_or(1, |summary| summary.number + 1),
            callee,
            text,
            previous: self.summary.as_ref().map(|summary| summary.hash),
        }
    }

    fn phase_note(&self, phase: Phase) -> Note {
        match phase {
            Phase::Preparing(text) => Note::Preparing(self.kind(None, Some(text))),
            Phase::Running => Note::Running(self.kind(None, None)),
            Phase::Waiting(callee) => Note::Waiting(self.kind(callee, None)),
            Phase::Resumed => Note::Resumed(self.kind(None, None)),
            Phase::Collecting => Note::Collecting(self.kind(None, None)),
        }
    }

    fn refusal_note(&self, refused: Refused) -> Note {
        Note::CallRefused(CallRefused {
            kind: self.kind(None, Some(refused.text)),
            target: refused.target,
            code: refused.code,
        })
    }
}
