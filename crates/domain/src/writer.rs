//! Who writes which events: what the broker lets gateways and nodes store, as filters of subjects.

use std::fmt;

/// A part that writes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writer {
    Gateway,
    Node,
}

/// The state events of a run that its holder writes, and before it whoever takes it.
const STATES_OF_NODES: [&str; 6] = [
    "delivered",
    "lease",
    "attempt_lost",
    "refused",
    "attempt_failed",
    "result",
];

/// The state events of a run that gateways write: what begins it, what takes it from a queue that no node
/// serves, and what ends one that no node ends.
const STATES_OF_GATEWAYS: [&str; 8] = [
    "launch.*.*",
    "request",
    "returned",
    "reuse",
    "cancel",
    "lease",
    "result",
    "sealed",
];

/// What a run spends on models.
const SPENDING: [&str; 2] = ["reserved", "settled"];

/// What is of no run: what users and operators lay down and ask for, and what gateways decide for the whole
/// cluster, after the tenant.
const OF_NO_RUN: [&str; 19] = [
    "capsule.*.registered",
    "file.*.uploaded",
    "token.*.issued",
    "token.*.revoked",
    "deadletter.*.requeued",
    "deadletter.*.purged",
    "rule.*.set",
    "rule.*.removed",
    "admission.runs.granted",
    "placement.*.asked",
    "archive.log.archived",
    "archive.log.released",
    "retention.*.policy_set",
    "retention.*.policy_removed",
    "retention.*.held",
    "retention.*.hold_removed",
    "artifact.*.collected",
    "node.*.drain",
    "node.*.resume",
];

impl Writer {
    /// Filters of all that it may store.
    pub fn subjects(self) -> Vec<String> {
        let state = |kind: &&str| format!("ev.*.run.*.*.s.{kind}");
        match self {
            Self::Gateway => {
                let states = STATES_OF_GATEWAYS.iter().map(state);
                let others = OF_NO_RUN.iter().map(|kind| format!("ev.*.{kind}"));
                states.chain(others).collect()
            }
            Self::Node => {
                let states = STATES_OF_NODES.iter().map(state);
                let spending = SPENDING.iter().map(|kind| format!("ev.*.run.*.*.m.{kind}"));
                let notes = std::iter::once("ev.*.run.*.*.n.*".to_owned());
                states.chain(spending).chain(notes).collect()
            }
        }
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Gateway => "gateway",
            Self::Node => "node",
        })
    }
}

/// Whether events of the type `kind` are kept under `subject`. Writers are told apart by subjects, so
/// whoever read an event by its type alone would believe anybody anything.
pub fn is_kept_under(kind: &str, subject: &str) -> bool {
    let mut words = kind.split('.').skip(2);
    let (Some(thing), Some(word)) = (words.next(), words.next()) else {
        return false;
    };
    let mut tokens = subject.split('.').skip(2);
    let token = match tokens.next() {
        Some("run") => match tokens.nth(2) {
            Some("s" | "n") if thing == "run" => tokens.next(),
            Some("m") if thing == "spending" => tokens.next(),
            _ => None,
        },
        Some(other) if other == thing => tokens.nth(1),
        _ => None,
    };
    match (thing, word) {
        // The launch of a run that has waited: the queue must see no difference.
        ("run", "admitted") => token == Some("launch"),
        _ => token == Some(word),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::subject::is_under;

    /// All types of events, as the samples in docs/contracts name them.
    fn kinds() -> BTreeSet<String> {
        let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/contracts/events");
        let names = std::fs::read_dir(samples).expect("samples of all events");
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // The name of a variant of a sample follows the version.
        names
            .map(|name| name.split_inclusive('.').take(5).collect::<String>())
            .map(|kind| kind.trim_end_matches('.').to_owned())
            .collect()
    }

    /// A subject that events of this type are kept under.
    fn subject_of(kind: &str) -> String {
        let words: Vec<&str> = kind.split('.').collect();
        let run = "ev.default.run.r.r";
        match (words[2], words[3]) {
            ("run", "admitted" | "launch") => format!("{run}.s.launch.any.root"),
            (
                "run",
                word @ ("preparing" | "running" | "waiting" | "resumed" | "collecting"
                | "call_refused" | "egress" | "egress_refused"),
            ) => format!("{run}.n.{word}"),
            ("run", word) => format!("{run}.s.{word}"),
            ("spending", word) => format!("{run}.m.{word}"),
            ("archive", word) => format!("ev.default.archive.log.{word}"),
            ("admission", word) => format!("ev.default.admission.runs.{word}"),
            (thing, word) => format!("ev.default.{thing}.x.{word}"),
        }
    }

    fn may(writer: Writer, subject: &str) -> bool {
        let subjects = writer.subjects();
        subjects.iter().any(|filter| is_under(subject, filter))
    }

    #[test]
    fn every_event_has_a_writer_and_only_ends_have_two() {
        for kind in kinds() {
            let subject = subject_of(&kind);
            let writers = [Writer::Gateway, Writer::Node].map(|writer| may(writer, &subject));
            assert_ne!(writers, [false, false], "nobody may write {kind}");
            let is_shared =
                ["dev.aod.run.lease.v1", "dev.aod.run.result.v1"].contains(&kind.as_str());
            assert_eq!(writers == [true, true], is_shared, "{kind}");
        }
    }

    #[test]
    fn a_type_is_kept_under_its_own_subject_and_no_other() {
        let kinds = kinds();
        for kind in &kinds {
            for other in &kinds {
                let (subject, expected) = (subject_of(other), subject_of(kind));
                assert_eq!(
                    is_kept_under(kind, &subject),
                    subject == expected,
                    "{kind} under {subject}"
                );
            }
        }
        for kind in ["", "launch", "dev.aod.run", "dev.aod.run.lease"] {
            let subject = "ev.default.run.r.r.s.lease";
            assert_eq!(is_kept_under(kind, subject), kind == "dev.aod.run.lease");
            assert!(!is_kept_under(kind, "ev.default"));
            assert!(!is_kept_under(kind, ""));
        }
    }

    #[test]
    fn filters_are_no_wider_than_what_is_written() {
        for subject in [
            "ev.default.run.r.r.s.launch",
            "ev.default.run.r.r.s.launch.any.root.more",
            "ev.default.run.r.r.s.unheard",
            "ev.default.rule.x",
            "ev.default.anything.x.set",
        ] {
            assert!(!may(Writer::Gateway, subject), "{subject}");
            assert!(!may(Writer::Node, subject), "{subject}");
        }
    }
}
