//! The events that the broker lets gateways and nodes store, as filters of subjects.

/// A part that writes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writer {
    Gateway,
    Node,
}

/// The state events of a run that nodes write: its holder, or the node that is about to lease it.
const STATES_OF_NODES: [&str; 7] = [
    "delivered",
    "leased",
    "attempt_lost",
    "attempt_refused",
    "attempt_failed",
    "step_ended",
    "ended",
];

/// The state events of a run that gateways write: they begin runs, take them from queues that no node serves, and end
/// runs that no node ends.
const STATES_OF_GATEWAYS: [&str; 8] = [
    "launched.*.*",
    "requested",
    "admission_returned",
    "reused",
    "cancel_requested",
    "leased",
    "ended",
    "sealed",
];

/// Spending on models.
const SPENDING: [&str; 2] = ["reserved", "settled"];

/// Subjects without a run, after the tenant: objects of users and operators, and decisions of gateways for the whole
/// cluster.
const OF_NO_RUN: [&str; 20] = [
    "capsule.*.registered",
    "capsule.*.removed",
    "file.*.uploaded",
    "token.*.issued",
    "token.*.revoked",
    "deadletter.*.requeued",
    "deadletter.*.purged",
    "rule.*.set",
    "rule.*.removed",
    "admission.runs.granted",
    "placement.*.queue_opened",
    "archive.log.archived",
    "archive.log.released",
    "retention.*.policy_set",
    "retention.*.policy_removed",
    "retention.*.hold_placed",
    "retention.*.hold_removed",
    "artifact.*.deleted",
    "node.*.drained",
    "node.*.resumed",
];

impl Writer {
    /// Filters of all subjects that it may write.
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

/// Whether events of the type `kind` are stored under `subject`. Rights to write depend on subjects, so a reader that
/// checked only the type would trust any writer.
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
        // The launch of a run that waited for admission: the queue must see no difference.
        ("run", "admitted") => token == Some("launched"),
        _ => token == Some(word),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::subject::is_under;

    /// All types of events, from the names of the samples in docs/contracts.
    fn kinds() -> BTreeSet<String> {
        let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/contracts/events");
        let names = std::fs::read_dir(samples).expect("samples of all events");
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // The name of a variant follows the version.
        names
            .map(|name| name.split_inclusive('.').take(5).collect::<String>())
            .map(|kind| kind.trim_end_matches('.').to_owned())
            .collect()
    }

    /// A subject of events of this type.
    fn subject_of(kind: &str) -> String {
        let words: Vec<&str> = kind.split('.').collect();
        let run = "ev.default.run.r.r";
        match (words[2], words[3]) {
            ("run", "admitted" | "launched") => format!("{run}.s.launched.any.root"),
            (
                "run",
                word @ ("preparation_started"
                | "capsule_started"
                | "wait_started"
                | "wait_ended"
                | "collection_started"
                | "call_refused"
                | "egress_closed"
                | "egress_refused"),
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
            assert_ne!(writers, [false, false], "no part may write {kind}");
            let is_shared =
                ["dev.aod.run.leased.v1", "dev.aod.run.ended.v1"].contains(&kind.as_str());
            assert_eq!(writers == [true, true], is_shared, "{kind}");
        }
    }

    #[test]
    fn type_is_stored_only_under_its_own_subject() {
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
        for kind in ["", "launched", "dev.aod.run", "dev.aod.run.leased"] {
            let subject = "ev.default.run.r.r.s.leased";
            assert_eq!(is_kept_under(kind, subject), kind == "dev.aod.run.leased");
            assert!(!is_kept_under(kind, "ev.default"));
            assert!(!is_kept_under(kind, ""));
        }
    }

    #[test]
    fn filters_are_no_wider_than_written_subjects() {
        for subject in [
            "ev.default.run.r.r.s.launched",
            "ev.default.run.r.r.s.launched.any.root.more",
            "ev.default.run.r.r.s.unheard",
            "ev.default.rule.x",
            "ev.default.anything.x.set",
        ] {
            assert!(!may(Writer::Gateway, subject), "{subject}");
            assert!(!may(Writer::Node, subject), "{subject}");
        }
    }
}
