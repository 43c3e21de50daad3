//! The types of events, and their subjects.

use super::Scope;
use crate::manifest::CapsuleName;

/// The object of an event, which determines its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// The state of a run.
    State,
    /// A note on an attempt.
    Note,
    /// Spending on models.
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
    /// As in stored events.
    pub name: &'static str,
    /// The last word of its name, a token of its subjects.
    pub word: &'static str,
    family: Family,
}

/// A text that names no type of events.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown event type {0:?}")]
pub struct UnknownKind(String);

macro_rules! kinds {
    ($($family:ident $group:literal: $($word:literal)*;)*) => {
        /// All types, in the order of listings.
        const ALL: &[Kind] = &[$($(Kind {
            name: concat!("dev.aod.", $group, ".", $word, ".v1"),
            word: $word,
            family: Family::$family,
        },)*)*];
    };
}

kinds! {
    State "run": "requested" "launched" "admitted" "admission_returned" "reused" "delivered" "leased" "attempt_lost" "attempt_refused" "attempt_failed" "step_ended" "cancel_requested" "ended" "sealed";
    Note "run": "preparation_started" "capsule_started" "wait_started" "wait_ended" "collection_started" "call_refused" "egress_closed" "egress_refused";
    Spending "spending": "reserved" "settled";
    Capsule "capsule": "registered" "removed";
    Node "node": "drained" "resumed";
    DeadLetter "deadletter": "requeued" "purged";
    Rule "rule": "set" "removed";
    Admission "admission": "granted";
    Archive "archive": "archived" "released";
    Token "token": "issued" "revoked";
    File "file": "uploaded";
    Placement "placement": "queue_opened";
    Retention "retention": "policy_set" "policy_removed" "hold_placed" "hold_removed";
    Artifact "artifact": "deleted";
}

impl Kind {
    /// All types.
    pub const ALL: &'static [Self] = ALL;

    /// The types for `text`: a full name, or the last word of one or more names.
    pub fn find(text: &str) -> Result<Vec<&'static Self>, UnknownKind> {
        let all = Self::ALL.iter();
        let found: Vec<_> = all
            .filter(|kind| kind.name == text || kind.word == text)
            .collect();
        if found.is_empty() {
            return Err(UnknownKind(text.chars().take(80).collect()));
        }
        Ok(found)
    }

    /// The subjects of events of this type, for one tenant or `*`.
    pub(super) fn filter(
        &self,
        tenant: &str,
        scope: Option<Scope>,
        capsule: Option<&CapsuleName>,
    ) -> String {
        let word = self.word;
        let runs = || scope.map_or_else(|| "*.*".to_owned(), Scope::tokens);
        match self.family {
            // A launch, or an admission that acts as one, has pool and class after its type.
            Family::State if matches!(word, "launched" | "admitted") => {
                format!("ev.{tenant}.run.{}.s.launched.>", runs())
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
