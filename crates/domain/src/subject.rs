//! The subjects of the log: one subtree a run, so that one guard covers a run.
//!
//! ```text
//! ev.<tenant>.run.<root>.<run>.s.<type>[.<label>.<class>]   state events, guarded and chained
//! ev.<tenant>.run.<root>.<run>.n.<type>                     notes, neither
//! ev.<tenant>.run.<root>.<run>.m.<type>                     what it spends on models, guarded and chained for its tree
//! ev.<tenant>.{capsule,deadletter,file}.<id>.<type>         what else is of one tenant
//! ev.default.{node,rule,admission,archive,placement,retention,artifact}.<id>.<type>    what is of the whole cluster
//! ev.<tenant>.token.<id>.<type>                             who may do what; for all tenants `default`
//! ```
//!
//! Where a run's events are follows from its tenant and its id. An id belongs to one run whoever's that is, so
//! whoever reads, and every guard, has `*` for the tenant: nobody has to know it to find a run, and a second
//! run of the same id under another tenant is never stored.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::flow::RuleName;
use crate::id::{NodeId, RunId, TokenId};
use crate::manifest::CapsuleName;
use crate::tenant::{self, Tenant};
use crate::text;

/// Where events of the whole cluster are, as they were when there was one tenant.
const CLUSTER: &str = tenant::DEFAULT;

/// Everything the log may hold.
pub const ALL: &str = "ev.>";

/// The launches, which the work queue is made from.
pub const LAUNCHES: &str = "ev.*.run.*.*.s.launch.>";

/// The state events of all runs, which wake whoever waits for a result.
pub const STATES: &str = "ev.*.run.*.*.s.>";

/// The terminal events of all runs.
pub const RESULTS: &str = "ev.*.run.*.*.s.result";

/// The requests to cancel, which the holders of the runs watch for.
pub const CANCELS: &str = "ev.*.run.*.*.s.cancel";

/// The registrations of capsules.
pub const CAPSULES: &str = "ev.*.capsule.>";

/// What operators laid down about admission.
pub const RULES: &str = "ev.*.rule.>";

/// Which runs were admitted: what the guard of the next admission covers.
pub const ADMISSIONS: &str = "ev.*.admission.>";

/// What became of old parts of the log: what the guard of the next event about them covers.
pub const ARCHIVE: &str = "ev.*.archive.>";

/// Who may do what: what the guard of the next such event covers.
pub const TOKENS: &str = "ev.*.token.>";

/// What nodes must know of queues that are for more than a label.
pub const PLACEMENTS: &str = "ev.*.placement.>";

/// What operators laid down about keeping, and what they hold.
pub const RETENTION: &str = "ev.*.retention.>";

/// What operators asked of nodes.
pub const NODES: &str = "ev.*.node.>";

/// Where an event is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject(String);

impl Subject {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tenant that the subject `text` is of.
    pub fn tenant_of(text: &str) -> Option<Tenant> {
        let mut tokens = text.split('.');
        (tokens.next() == Some("ev")).then_some(())?;
        tokens.next()?.parse().ok()
    }

    /// Whether `text` is the subject of something that one tenant has: a run, a capsule, a dead letter or a file.
    pub fn is_of_one_tenant(text: &str) -> bool {
        matches!(
            text.split('.').nth(2),
            Some("run" | "capsule" | "deadletter" | "file")
        )
    }

    /// The run that the subject `text` belongs to, where it belongs to one.
    pub fn run_of(text: &str) -> Option<RunId> {
        let mut tokens = text.split('.');
        let (Some("ev"), Some(_), Some("run"), Some(_)) =
            (tokens.next(), tokens.next(), tokens.next(), tokens.next())
        else {
            return None;
        };
        RunId::from_token(tokens.next()?)
    }

    /// The run that the subject `text` tells of: its own, or the one that was given up.
    pub fn about_run(text: &str) -> Option<RunId> {
        if Self::is_dead_letter(text) {
            return RunId::from_token(text.split('.').nth(3)?);
        }
        Self::run_of(text)
    }

    /// Whether `text` is the subject of an event that may be the first of a run: its launch, its request if it
    /// waits for admission, or the reuse of a result.
    pub fn begins_run(text: &str) -> bool {
        let begins = |word| matches!(word, "launch" | "request" | "reuse");
        Self::is_state(text) && text.split('.').nth(6).is_some_and(begins)
    }

    /// Whether `text` is the subject of a request that waits for admission.
    pub fn is_request(text: &str) -> bool {
        Self::is_state(text) && text.split('.').nth(6) == Some("request")
    }

    /// Whether `text` is the subject of a launch, which the work queue takes in.
    pub fn is_launch(text: &str) -> bool {
        Self::is_state(text) && text.split('.').nth(6) == Some("launch")
    }

    /// Whether `text` is the subject of what operators did about a rule.
    pub fn is_rule(text: &str) -> bool {
        text.split('.').nth(2) == Some("rule")
    }

    /// Whether `text` is the subject of a registration.
    pub fn is_capsule(text: &str) -> bool {
        text.split('.').nth(2) == Some("capsule")
    }

    /// Whether `text` is the subject of what became of a file.
    pub fn is_file(text: &str) -> bool {
        text.split('.').nth(2) == Some("file")
    }

    /// Whether `text` is the subject of an admission.
    pub fn is_admission(text: &str) -> bool {
        text.split('.').nth(2) == Some("admission")
    }

    /// Whether `text` is the subject of what became of artifacts.
    pub fn is_artifact(text: &str) -> bool {
        text.split('.').nth(2) == Some("artifact")
    }

    /// Whether `text` is the subject of what operators did about a dead letter.
    pub fn is_dead_letter(text: &str) -> bool {
        text.split('.').nth(2) == Some("deadletter")
    }

    /// Whether `text` is the subject of the terminal event of a run.
    pub fn is_result(text: &str) -> bool {
        Self::is_state(text) && text.split('.').nth(6) == Some("result")
    }

    /// Whether `text` is the subject of what a run spends on models.
    pub fn is_spending(text: &str) -> bool {
        text.split('.').nth(2) == Some("run") && text.split('.').nth(5) == Some("m")
    }

    /// Whether `text` is the subject of a state event of a run.
    pub fn is_state(text: &str) -> bool {
        text.split('.').nth(2) == Some("run") && text.split('.').nth(5) == Some("s")
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Whether `subject` lies under `filter`, with the wildcards of NATS.
pub fn is_under(subject: &str, filter: &str) -> bool {
    let pairs = subject.bytes().zip(filter.bytes());
    let same = pairs
        .take_while(|(found, expected)| found == expected)
        .count();
    match &filter.as_bytes()[same..] {
        [] => subject.len() == same,
        b">" => subject.len() > same,
        [b'*', ..] => {
            let token = subject[same..].find('.').unwrap_or(subject.len() - same);
            token > 0 && is_under(&subject[same + token..], &filter[same + 1..])
        }
        _ => false,
    }
}

/// A filter that has everything that lies under any of `filters`, and as little else as one can; of
/// none, everything.
pub fn covering<'a>(filters: impl IntoIterator<Item = &'a str>) -> String {
    let filters = filters.into_iter().map(str::to_owned);
    let covering = filters.reduce(|one, other| widened(&one, &other));
    covering.unwrap_or_else(|| ALL.to_owned())
}

/// Covers both: token by token where they differ, and all the rest where one is longer.
fn widened(one: &str, other: &str) -> String {
    let (ones, others): (Vec<&str>, Vec<&str>) =
        (one.split('.').collect(), other.split('.').collect());
    let common = ones.len().min(others.len());
    let mut tokens = Vec::new();
    for index in 0..common {
        let is_cut = index + 1 == common && ones.len() != others.len();
        let token = match (ones[index], others[index]) {
            (">", _) | (_, ">") => ">",
            _ if is_cut => ">",
            (one, other) if one == other => one,
            _ => "*",
        };
        tokens.push(token);
        if token == ">" {
            break;
        }
    }
    tokens.join(".")
}

/// Where `run` is, whoever's it is.
fn any_run(run: RunId) -> String {
    format!("ev.*.run.{}.{}", run.root().token(), run.token())
}

/// All state events of `run`: what its guard covers.
pub fn run_state(run: RunId) -> String {
    format!("{}.s.>", any_run(run))
}

/// All events of `run`, notes included.
pub fn run_all(run: RunId) -> String {
    format!("{}.>", any_run(run))
}

/// All events of the tree below `root`.
pub fn tree(root: RunId) -> String {
    format!("ev.*.run.{}.>", root.root().token())
}

/// The one terminal event of `run`.
pub fn run_result(run: RunId) -> String {
    format!("{}.s.result", any_run(run))
}

fn run_prefix(tenant: &Tenant, run: RunId) -> String {
    format!("ev.{tenant}.run.{}.{}", run.root().token(), run.token())
}

pub(crate) fn run_event(tenant: &Tenant, run: RunId, kind: &str) -> Subject {
    Subject(format!("{}.s.{kind}", run_prefix(tenant, run)))
}

pub(crate) fn run_launch(tenant: &Tenant, run: RunId, label: &Label, class: Class) -> Subject {
    let prefix = run_prefix(tenant, run);
    Subject(format!("{prefix}.s.launch.{label}.{class}"))
}

pub(crate) fn run_note(tenant: &Tenant, run: RunId, kind: &str) -> Subject {
    Subject(format!("{}.n.{kind}", run_prefix(tenant, run)))
}

/// The registrations of one capsule name, whoever has it.
pub fn registrations(name: &CapsuleName) -> String {
    format!("ev.*.capsule.{name}.registered")
}

pub(crate) fn capsule_event(tenant: &Tenant, name: &CapsuleName, kind: &str) -> Subject {
    Subject(format!("ev.{tenant}.capsule.{name}.{kind}"))
}

/// What operators did about the dead letter of `run`: what its guard covers.
pub fn dead_letter(run: RunId) -> String {
    format!("ev.*.deadletter.{}.>", run.token())
}

pub(crate) fn dead_letter_event(tenant: &Tenant, run: RunId, kind: &str) -> Subject {
    Subject(format!("ev.{tenant}.deadletter.{}.{kind}", run.token()))
}

/// What the tree of `root` spends on models: what its guard covers.
pub fn spending(root: RunId) -> String {
    format!("ev.*.run.{}.*.m.>", root.root().token())
}

pub(crate) fn spending_event(tenant: &Tenant, run: RunId, kind: &str) -> Subject {
    Subject(format!("{}.m.{kind}", run_prefix(tenant, run)))
}

pub(crate) fn file_event(tenant: &Tenant, digest: &Digest, kind: &str) -> Subject {
    Subject(format!("ev.{tenant}.file.{digest}.{kind}"))
}

pub(crate) fn rule_event(name: &RuleName, kind: &str) -> Subject {
    Subject(format!("ev.{CLUSTER}.rule.{name}.{kind}"))
}

/// Admissions are of no run: one guard covers all of them.
pub(crate) fn admission_event(kind: &str) -> Subject {
    Subject(format!("ev.{CLUSTER}.admission.runs.{kind}"))
}

/// `tenant` is none for a token of the whole cluster.
pub(crate) fn token_event(tenant: Option<&Tenant>, token: TokenId, kind: &str) -> Subject {
    let tenant = tenant.map_or(CLUSTER, Tenant::as_str);
    Subject(format!("ev.{tenant}.token.{}.{kind}", token.token()))
}

/// The log has one archive.
pub(crate) fn archive_event(kind: &str) -> Subject {
    Subject(format!("ev.{CLUSTER}.archive.log.{kind}"))
}

/// What nodes must know of `queue`.
pub(crate) fn placement_event(queue: &Label, kind: &str) -> Subject {
    Subject(format!("ev.{CLUSTER}.placement.{queue}.{kind}"))
}

pub(crate) fn retention_event(id: &str, kind: &str) -> Subject {
    Subject(format!("ev.{CLUSTER}.retention.{id}.{kind}"))
}

/// What became of artifacts whose names begin as that of `digest` does.
pub fn artifacts_like(digest: Digest) -> String {
    format!("ev.{CLUSTER}.artifact.{:x}.>", first_digit(&digest))
}

/// An event about artifacts whose names begin as that of `first` does.
pub(crate) fn artifact_event(first: Option<&Digest>, kind: &str) -> Subject {
    let digit = first.map_or(0, first_digit);
    Subject(format!("ev.{CLUSTER}.artifact.{digit:x}.{kind}"))
}

/// The first hexadecimal digit of a digest.
pub(crate) fn first_digit(digest: &Digest) -> u8 {
    digest.as_bytes()[0] >> 4
}

/// All that operators have asked of `node`.
pub fn asked_of(node: NodeId) -> String {
    format!("ev.{CLUSTER}.node.{}.>", node.token())
}

pub(crate) fn node_event(node: NodeId, kind: &str) -> Subject {
    Subject(format!("ev.{CLUSTER}.node.{}.{kind}", node.token()))
}

/// Roots start new trees; children are called from within one and go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    Child,
    Root,
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Child => "child",
            Self::Root => "root",
        })
    }
}

/// A property of nodes that a run may ask for: 1 to 63 of `a-z`, `0-9` and `-`, a token of subjects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Label(String);

impl Label {
    /// Carried by every node that is not given labels of its own only, asked for by default.
    pub fn any() -> Self {
        Self("any".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A text that cannot be a [`Label`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the label {0:?} is not 1 to 63 of a-z, 0-9 and -")]
pub struct MalformedLabel(String);

impl std::str::FromStr for Label {
    type Err = MalformedLabel;

    fn from_str(text: &str) -> Result<Self, MalformedLabel> {
        if text::is_token(text) {
            Ok(Self(text.into()))
        } else {
            Err(MalformedLabel(text.chars().take(80).collect()))
        }
    }
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_subject_tells_its_run() {
        let run = RunId::root_of(Uuid::from_u128(5)).child(&Digest::of("call"));
        let tenant: Tenant = "acme".parse().unwrap();
        let subject = run_launch(&tenant, run, &Label::any(), Class::Child);
        assert_eq!(Subject::run_of(subject.as_str()), Some(run));
        assert_eq!(Subject::tenant_of(subject.as_str()), Some(tenant.clone()));
        assert!(Subject::is_state(subject.as_str()));
        assert!(is_under(subject.as_str(), &run_state(run)));
        assert!(is_under(subject.as_str(), &self::tree(run)));
        let note = run_note(&tenant, run, "running");
        assert!(!Subject::is_state(note.as_str()));
        assert!(is_under(note.as_str(), &run_all(run)));
        assert_eq!(Subject::run_of("ev.default.node.x.drain"), None);
    }

    #[test]
    fn wildcards_stand_for_one_token_or_for_all_that_follow() {
        assert!(is_under("ev.a.b", "ev.>"));
        assert!(!is_under("ev", "ev.>"));
        assert!(is_under("ev.a.b", "ev.*.b"));
        assert!(!is_under("ev.a.b", "ev.*"));
        assert!(!is_under("ev.a", "ev.a.b"));
    }

    #[test]
    fn one_filter_covers_several() {
        let check = |filters: &[&str], expected: &str| {
            assert_eq!(covering(filters.iter().copied()), expected);
        };
        check(&[], "ev.>");
        check(&["ev.a.b"], "ev.a.b");
        check(&["ev.a.s.lease", "ev.a.s.result"], "ev.a.s.*");
        check(&["ev.a.s.launch.>", "ev.a.s.result"], "ev.a.s.>");
        check(&["ev.a.s.result", "ev.a.n.running"], "ev.a.*.*");
        check(&["ev.a.b.c", "ev.x"], "ev.>");
        check(&["ev.a.s.lease", "ev.a.s.result", "ev.b.>"], "ev.*.>");
    }

    #[test]
    fn wildcards_are_no_labels() {
        for text in ["", "*", ">", "a.b", "A", "a b", "ä"] {
            assert!(text.parse::<Label>().is_err(), "{text}");
        }
    }
}
