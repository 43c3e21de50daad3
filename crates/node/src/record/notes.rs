//! Notes on an attempt: events for people, which nothing waits for.
//!
//! Each note costs the log a synced write, so the node notes only phases that last; the result's timings cover shorter
//! ones. The node always notes refused calls and connections to external hosts.

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
use aod_services::program::spawn;
use aod_services::runs::Runs;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::secrets::redaction::Redaction;

/// How long a phase lasts before it is noted: an acceptable delay for a person who watches, and longer than the quick
/// calls of a busy cluster, which notes would slow down.
const NOTED_AFTER: Duration = Duration::from_secs(1);

/// Messages that wait for the writer. Further phases are dropped, as only the last phase counts.
const QUEUE_LENGTH: usize = 16;

/// The phase of an attempt.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Preparing(String),
    Running,
    Waiting(Option<RunId>),
    Resumed,
    Collecting,
}

/// Characters of a refusal in a note: capsules choose a part of them.
const REFUSAL_LENGTH_MAX: usize = 1_000;

/// Maximum number of notes for each kind of fact of one attempt; a last note has the number of further facts.
const FACTS_NOTED_MAX: u32 = 100;

/// Codes of noted refusals: for a missing permission, for a file or a run that is not the capsule's, or for a model that
/// the operator does not provide. Other codes concern malformed requests.
const REFUSALS: [ErrorCode; 16] = [
    ErrorCode::TargetNotAllowed,
    ErrorCode::UnknownCapsule,
    ErrorCode::CallCycle,
    ErrorCode::CallTooDeep,
    ErrorCode::CallsExhausted,
    ErrorCode::TooManyCalls,
    ErrorCode::ModelNotAllowed,
    ErrorCode::UnknownProvider,
    ErrorCode::ModelUnpriced,
    ErrorCode::ModelKeyMissing,
    ErrorCode::ModelUnreachable,
    ErrorCode::BudgetExhausted,
    ErrorCode::ArgumentsInvalid,
    ErrorCode::FileRefused,
    ErrorCode::UnknownRun,
    ErrorCode::UnknownRoute,
];

/// A message for the writer.
#[derive(Debug)]
enum Message {
    Phase(Phase),
    Fact(Fact),
}

/// A fact that is always noted, up to a maximum for each kind.
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

/// A closed connection to an external host.
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
    /// Its kind, as an index in [`Writer::facts`].
    const fn kind(&self) -> usize {
        match self {
            Self::CallRefused { .. } => 0,
            Self::EgressRefused { .. } => 1,
            Self::Egress(_) => 2,
        }
    }
}

/// Writes the notes of one attempt.
#[derive(Debug)]
pub(crate) struct Notes {
    messages: mpsc::Sender<Message>,
    writer: JoinHandle<Option<NotesSummary>>,
}

impl Notes {
    /// `redaction` applies to all notes.
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
        // The queue is full only if phases change too fast to be noted.
        let _ = self.messages.try_send(Message::Phase(phase));
    }

    /// Notes facts, until the notes are finished.
    pub(crate) fn facts(&self) -> FactNotes {
        FactNotes(self.messages.downgrade())
    }

    /// Finishes the notes and summarizes them; drops a phase that has not lasted.
    pub(crate) async fn finish(self) -> Option<NotesSummary> {
        drop(self.messages);
        self.writer.await.unwrap_or(None)
    }
}

/// Notes the refused calls and the connections of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct FactNotes(mpsc::WeakSender<Message>);

impl FactNotes {
    /// Drops all notes.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn dropped() -> Self {
        Self(mpsc::channel(1).0.downgrade())
    }

    /// Notes a refused call of `target` if its code is in [`REFUSALS`].
    pub(crate) async fn call_refused(&self, target: &str, problem: &Problem) {
        if REFUSALS.iter().any(|code| code.as_str() == problem.code) {
            let refused = Fact::CallRefused {
                target: cut(target),
                code: problem.code.clone(),
                text: shortened(&problem.detail),
            };
            self.begin().send(refused).await;
        }
    }

    /// Notes a refused connection to `host`.
    pub(crate) async fn egress_refused(&self, host: &str, port: Option<u16>, problem: &Problem) {
        let refused = Fact::EgressRefused {
            host: cut(host),
            port,
            code: problem.code.clone(),
            text: shortened(&problem.detail),
        };
        self.begin().send(refused).await;
    }

    /// Begins a connection: the notes of the attempt are finished only after its end is noted.
    pub(crate) fn begin(&self) -> Reporter {
        Reporter(self.0.upgrade())
    }
}

/// Notes the end of one connection.
#[derive(Debug)]
pub(crate) struct Reporter(Option<mpsc::Sender<Message>>);

impl Reporter {
    pub(crate) async fn report(self, connected: Connected) {
        self.send(Fact::Egress(connected)).await;
    }

    async fn send(self, fact: Fact) {
        if let Some(messages) = self.0 {
            // An error means that the notes are finished.
            let _ = messages.send(Message::Fact(fact)).await;
        }
    }
}

/// The message of a refusal, shortened for an event.
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
    /// The facts, by kind.
    facts: [Facts; 3],
}

/// The facts of one kind.
#[derive(Default)]
struct Facts {
    count: u32,
    /// The last fact beyond the maximum.
    unwritten: Option<Fact>,
}

impl Writer {
    async fn run(mut self, mut messages: mpsc::Receiver<Message>) -> Option<NotesSummary> {
        let mut current: Option<(Phase, Instant)> = None;
        loop {
            let next = match &current {
                None => messages.recv().await,
                Some((_, since)) => match timeout_at(*since + NOTED_AFTER, messages.recv()).await {
                    Ok(next) => next,
                    Err(_) => {
                        if let Some((phase, _)) = current.take() {
                            self.write(self.phase_note(phase)).await;
                        }
                        continue;
                    }
                },
            };
            match next {
                Some(Message::Phase(phase)) => current = Some((phase, Instant::now())),
                Some(Message::Fact(fact)) => self.fact(fact).await,
                None => break,
            }
        }
        for Facts { count, unwritten } in std::mem::take(&mut self.facts) {
            if let Some(last) = unwritten {
                let note = self.fact_note(last, Some(count - FACTS_NOTED_MAX));
                self.write(note).await;
            }
        }
        self.summary
    }

    async fn fact(&mut self, fact: Fact) {
        let facts = &mut self.facts[fact.kind()];
        facts.count += 1;
        if facts.count > FACTS_NOTED_MAX {
            facts.unwritten = Some(fact);
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
        let last = self.summary.as_ref();
        NoteKind {
            attempt: self.attempt,
            number: last.map_or(1, |last| last.number + 1),
            callee,
            text,
            previous: last.map(|last| last.hash),
        }
    }

    fn phase_note(&self, phase: Phase) -> Note {
        match phase {
            Phase::Preparing(text) => Note::PreparationStarted(self.kind(None, Some(text))),
            Phase::Running => Note::CapsuleStarted(self.kind(None, None)),
            Phase::Waiting(callee) => Note::WaitStarted(self.kind(callee, None)),
            Phase::Resumed => Note::WaitEnded(self.kind(None, None)),
            Phase::Collecting => Note::CollectionStarted(self.kind(None, None)),
        }
    }

    /// The note of `fact`; `more` is the number of facts beyond the maximum.
    fn fact_note(&self, fact: Fact, more: Option<u32>) -> Note {
        let refusal = |text: String| {
            let text = self.redaction.text(text);
            let text = more.map_or(text.clone(), |count| {
                format!("the last of {count} more refusals: {text}")
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
                let text = more.map(|count| format!("the last of {count} more connections"));
                Note::EgressClosed(Egress {
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
