//! The types of events, and where in the log each of them is.

use super::Scope;
use crate::manifest::CapsuleName;

/// What an event is about, which decides on its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// The state of a run.
    State,
    /// A note on an attempt.
    Note,
    /// What a run spends on models.
    Spending,
    Capsule,
    Node,
    DeadLetter,
    Rule,
    Admission,
    Archive,
    Token,
    File,
    Placement,
    Retention,
    Artifact,
}

/// A type of events.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// As events name it.
    pub name: &'static str,
    /// The last word of its name, a token of its subjects.
    pub word: &'static str,
    family: Family,
}

/// A text that names no type of events.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no type of events")]
pub struct UnknownKind(String);

macro_rules! kinds {
    ($($family:ident $group:literal: $($word:literal)*;)*) => {
        /// All types, in the order in which they are told.
        const ALL: &[Kind] = &[$($(Kind {
            name: concat!("dev.aod.", $group, ".", $word, ".v1"),
            word: $word,
            family: Family::$family,
        },)*)*];
    };
}

kinds! {
    State "run": "request" "launch" "admitted" "returned" "reuse" "delivered" "lease" "attempt_lost" "refused" "attempt_failed" "cancel" "result" "sealed";
    Note "run": "preparing" "running" "waiting" "resumed" "collecting" "call_refused" "egress" "egress_refused";
    Spending "spending": "reserved" "settled";
    Capsule "capsule": "registered";
    Node "node": "drain" "resume";
    DeadLetter "deadletter": "requeued" "purged";
    Rule "rule": "set" "removed";
    Admission "admission": "granted";
    Archive "archive": "archived" "released";
    Token "token": "issued" "revoked";
    File "file": "uploaded";
    Placement "placement": "asked";
    Retention "retention": "policy_set" "policy_removed" "held" "hold_removed";
    Artifact "artifact": "collected";
}

impl Kind {
    /// All types.
    pub const ALL: &'static [Self] = ALL;

    /// The type that `text` names: as events do, or by its last word.
    pub fn find(text: &str) -> Result<&'static Self, UnknownKind> {
        let mut all = Self::ALL.iter();
        all.find(|kind| kind.name == text || kind.word == text)
            .ok_or_else(|| UnknownKind(text.chars().take(80).collect()))
    }

    /// Where events of this type are, of one tenant or `*`, as far as subjects tell more.
    pub(super) fn filter(
        &self,
        tenant: &str,
        scope: Option<Scope>,
        capsule: Option<&CapsuleName>,
    ) -> String {
        let word = self.word;
        let runs = || scope.map_or_else(|| "*.*".to_owned(), Scope::tokens);
        match self.family {
            // A launch has its label and its class behind its type.
            // Whatever brings a run into the queue.
            Family::State if matches!(word, "launch" | "admitted") => {
                format!("ev.{tenant}.run.{}.s.launch.>", runs())
            }
            Family::State => format!("ev.{tenant}.run.{}.s.{word}", runs()),
            Family::Note => format!("ev.{tenant}.run.{}.n.{word}", runs()),
            Family::Spending => format!("ev.{tenant}.run.{}.m.{word}", runs()),
            Family::Capsule => {
                let name = capsule.map_or("*", CapsuleName::as_str);
                format!("ev.{tenant}.capsule.{name}.{word}")
            }
            Family::Node => format!("ev.{tenant}.node.*.{word}"),
            Family::Rule => format!("ev.{tenant}.rule.*.{word}"),
            Family::Placement => format!("ev.{tenant}.placement.*.{word}"),
            Family::Admission => format!("ev.{tenant}.admission.*.{word}"),
            Family::Archive => format!("ev.{tenant}.archive.*.{word}"),
            Family::Token => format!("ev.{tenant}.token.*.{word}"),
            Family::File => format!("ev.{tenant}.file.*.{word}"),
            Family::Retention => format!("ev.{tenant}.retention.*.{word}"),
            Family::Artifact => format!("ev.{tenant}.artifact.*.{word}"),
            Family::DeadLetter => {
                let run = match scope {
                    Some(Scope::Run(run)) => run.token(),
                    Some(Scope::Tree(_)) | None => "*".to_owned(),
                };
                format!("ev.{tenant}.deadletter.{run}.{word}")
            }
        }
    }
}
