//! Notes on an attempt: told for people, awaited by nobody.
//!
//! Each costs the log a synced write, so only a phase that lasts is told: what happened in a
//! shorter one stands in the result's timings. A call that was refused, and a connection with a host
//! outside, are told always.

use std::net::IpAddr;
use std::time::Duration;

use aod_api::problem::Problem;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::CloudEvent;
use aod_domain::id::RunId;
use aod_domain::run::{
    CallRefused, Egress, EgressRefused, Note, NoteKind, NotesSummary, REFUSED_TARGET_LENGTH_MAX,
    Run,
};
use aod_domain::tenant::Tenant;
use aod_ports::event_log::{Append, Guard};
use aod_ports::program::spawn;
use aod_ports::runs::Runs;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::debug;

use crate::redaction::Redaction;

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

/// Characters of a refusal that are told: capsules choose a part of them.
const REFUSAL_LENGTH_MAX: usize = 1_000;

/// Refused calls of one attempt that are told one by one, and so for each kind of fact; how many more
/// there were is told at its end.
const FACTS_TOLD_MAX: u32 = 100;

/// Refusals that are told: for want of a permission, and of what is not the capsule's to hand over or to ask
/// for. Others say that a request was not understood.
const REFUSALS: [ErrorCode; 14] = [
    ErrorCode::TargetNotAllowed,
    ErrorCode::UnknownCapsule,
    ErrorCode::CallCycle,
    ErrorCode::CallTooDeep,
    ErrorCode::CallsExhausted,
    ErrorCode::TooManyCalls,
    ErrorCode::ModelNotAllowed,
    ErrorCode::UnknownProvider,
    ErrorCode::ModelUnpriced,
    ErrorCode::BudgetExhausted,
    ErrorCode::ArgumentsInvalid,
    ErrorCode::FileRefused,
    ErrorCode::UnknownRun,
    ErrorCode::UnknownRoute,
];

/// What is told of an attempt.
#[derive(Debug)]
enum Message {
    Phase(Phase),
    Fact(Fact),
}

/// What is told always, up to a bound of each kind.
#[derive(Debug)]
enum Fact {
    CallRefused {
        target: String,
        code: String,
        text: String,
    },
    EgressRefused {
        host: String,
        port: Option<u16>,
        code: String,
        text: String,
    },
    Egress(Connected),
}

/// A connection to a host outside that has ended.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) address: IpAddr,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) lasted: Duration,
}

impl Fact {
    /// Its kind, as a place in [`Writer::facts`].
    const fn kind(&self) -> usize {
        match self {
            Self::CallRefused { .. } => 0,
            Self::EgressRefused { .. } => 1,
            Self::Egress(_) => 2,
        }
    }
}

/// Takes what is told of one attempt.
#[derive(Debug)]
pub(crate) struct Notes {
    messages: mpsc::Sender<Message>,
    writer: JoinHandle<Option<NotesSummary>>,
}

impl Notes {
    /// What `redaction` takes out is in no note.
    pub(crate) fn start(runs: Runs, run: &Run, attempt: u32, redaction: Redaction) -> Self {
        let (messages, receiver) = mpsc::channel(QUEUE_LENGTH);
        let writer = Writer {
            runs,
            tenant: run.launched.event.tenant.clone(),
            run: run.id,
            attempt,
            redaction,
            summary: None,
            facts: Default::default(),
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

    /// Where connections are told, until the notes are finished.
    pub(crate) fn egress(&self) -> EgressNotes {
        EgressNotes(self.messages.downgrade())
    }

    /// What was told; a phase that has not lasted is dropped.
    pub(crate) async fn finish(self) -> Option<NotesSummary> {
        drop(self.messages);
        self.writer.await.unwrap_or(None)
    }
}

/// Takes the refused calls of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct Refusals(mpsc::WeakSender<Message>);

impl Refusals {
    /// Nobody is told.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn untold() -> Self {
        Self(mpsc::channel(1).0.downgrade())
    }

    /// Tells that a call of `target` was refused, if it was for one of [`REFUSALS`].
    pub(crate) async fn tell(&self, target: &str, problem: &Problem) {
        let is_told = REFUSALS.iter().any(|code| code.as_str() == problem.code);
        let Some(messages) = self.0.upgrade().filter(|_| is_told) else {
            return;
        };
        let refused = Fact::CallRefused {
            target: cut(target),
            code: problem.code.clone(),
            text: shortened(&problem.detail),
        };
        // An error means that the attempt is over, and with it its notes.
        let _ = messages.send(Message::Fact(refused)).await;
    }
}

/// Takes what is told of the connections of one attempt.
#[derive(Debug)]
pub(crate) struct EgressNotes(mpsc::WeakSender<Message>);

impl EgressNotes {
    /// Nobody is told.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn untold() -> Self {
        Self(mpsc::channel(1).0.downgrade())
    }

    /// Tells that a connection with `host` was refused.
    pub(crate) async fn refused(&self, host: &str, port: Option<u16>, problem: &Problem) {
        let refused = Fact::EgressRefused {
            host: cut(host),
            port,
            code: problem.code.clone(),
            text: shortened(&problem.detail),
        };
        self.begin().send(refused).await;
    }

    /// For a connection that begins: the notes of the attempt are finished only after its end is told.
    pub(crate) fn begin(&self) -> Told {
        Told(self.0.upgrade())
    }
}

/// Where the end of one connection is told.
#[derive(Debug)]
pub(crate) struct Told(Option<mpsc::Sender<Message>>);

impl Told {
    pub(crate) async fn tell(self, connected: Connected) {
        self.send(Fact::Egress(connected)).await;
    }

    async fn send(self, fact: Fact) {
        if let Some(messages) = self.0 {
            // As above.
            let _ = messages.send(Message::Fact(fact)).await;
        }
    }
}

/// What was wrong, as much of it as an event holds beside the rest.
fn shortened(text: &str) -> String {
    text.chars().take(REFUSAL_LENGTH_MAX).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(REFUSED_TARGET_LENGTH_MAX).collect()
}

struct Writer {
    runs: Runs,
    tenant: Tenant,
    run: RunId,
    attempt: u32,
    redaction: Redaction,
    summary: Option<NotesSummary>,
    /// The facts so far, by their kinds.
    facts: [Facts; 3],
}

/// The facts of one kind.
#[derive(Default)]
struct Facts {
    count: u32,
    /// The last one, if it is one too many to be told by itself.
    untold: Option<Fact>,
}

impl Writer {
    async fn run(mut self, mut messages: mpsc::Receiver<Message>) -> Option<NotesSummary> {
        let mut current: Option<(Phase, Instant)> = None;
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
                Some(Message::Fact(fact)) => self.fact(fact).await,
                None => break,
            }
        }
        for Facts { count, untold } in std::mem::take(&mut self.facts) {
            if let Some(last) = untold {
                let note = self.fact_note(last, Some(count - FACTS_TOLD_MAX));
                self.write(note).await;
            }
        }
        self.summary
    }

    async fn fact(&mut self, fact: Fact) {
        let facts = &mut self.facts[fact.kind()];
        facts.count += 1;
        if facts.count > FACTS_TOLD_MAX {
            facts.untold = Some(fact);
            return;
        }
        let note = self.fact_note(fact, None);
        self.write(note).await;
    }

    async fn write(&mut self, note: Note) {
        let number = note.kind().number;
        let subject = note.subject(&self.tenant, self.run);
        let previous = self.summary.as_ref().map(|summary| summary.hash);
        let event = CloudEvent::new(self.runs.header(), self.run.to_string(), previous, note);
        let Ok(append) = Append::of(subject, Guard::None, &event) else {
            return;
        };
        let hash = Digest::of(&append.bytes);
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

    /// The note of `fact`, the last of `more` that were not told if there are any.
    fn fact_note(&self, fact: Fact, more: Option<u32>) -> Note {
        let refusal = |text: String| {
            let text = self.redaction.text(text);
            let text = more.map_or(text.clone(), |count| {
                format!("the last of {count} refusals more: {text}")
            });
            self.kind(None, Some(text))
        };
        match fact {
            Fact::CallRefused { target, code, text } => Note::CallRefused(CallRefused {
                kind: refusal(text),
                target: self.redaction.text(target),
                code,
            }),
            Fact::EgressRefused {
                host,
                port,
                code,
                text,
            } => Note::EgressRefused(EgressRefused {
                kind: refusal(text),
                host: self.redaction.text(host),
                port,
                code,
            }),
            Fact::Egress(connected) => {
                let text = more.map(|count| format!("the last of {count} connections more"));
                Note::Egress(Egress {
                    kind: self.kind(None, text),
                    host: self.redaction.text(connected.host),
                    port: connected.port,
                    address: connected.address,
                    bytes_sent: connected.bytes_sent,
                    bytes_received: connected.bytes_received,
                    duration_ms: u64::try_from(connected.lasted.as_millis()).unwrap_or(u64::MAX),
                })
            }
        }
    }
}
