//! The subjects of the log: each run has its own subtree, so that one guard covers a run.
//!
//! ```text
//! ev.<tenant>.run.<root>.<run>.s.<type>[.<pool>.<class>]    state events, guarded and chained
//! ev.<tenant>.run.<root>.<run>.n.<type>                     notes, neither
//! ev.<tenant>.run.<root>.<run>.m.<type>                     spending on models, guarded and chained for its tree
//! ev.<tenant>.{capsule,deadletter,file}.<id>.<type>         other objects of one tenant
//! ev.default.{node,rule,admission,archive,placement,retention,artifact}.<id>.<type>    the whole cluster
//! ev.<tenant>.token.<id>.<type>                             tokens; for all tenants `default`
//! ```
//!
//! The subjects of a run follow from its tenant and its id. An id belongs to one run of one tenant, so readers and
//! guards use `*` for the tenant: they find a run without its tenant, and a second run with the same id under another
//! tenant is never stored.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::id::{NodeId, RunId, TokenId};
use crate::name::{CapsuleName, RuleName};
use crate::tenant::{self, Tenant};
use crate::text;

/// The tenant token of events of the whole cluster, as before tenants existed.
const CLUSTER: &str = tenant::DEFAULT;

/// All subjects of the log.
pub const ALL: &str = "ev.>";

/// The launches, from which the work queue is derived.
pub const LAUNCHES: &str = "ev.*.run.*.*.s.launched.>";

/// The state events of all runs, which wake waiters for a result.
pub const STATES: &str = "ev.*.run.*.*.s.>";

/// The terminal events of all runs.
pub const RESULTS: &str = "ev.*.run.*.*.s.ended";

/// The requests to cancel, which holders of runs watch.
pub const CANCELS: &str = "ev.*.run.*.*.s.cancel_requested";

/// The registrations of capsules, and their removals.
pub const CAPSULES: &str = "ev.*.capsule.>";

/// Changes of flow-control rules.
pub const RULES: &str = "ev.*.rule.>";

/// Admissions: the guard of the next admission covers them.
pub const ADMISSIONS: &str = "ev.*.admission.>";

/// Changes of the archive: the guard of the next change covers them.
pub const ARCHIVE: &str = "ev.*.archive.>";

/// Changes of tokens: the guard of the next change covers them.
pub const TOKENS: &str = "ev.*.token.>";

/// Queues for requirements that nodes must know.
pub const PLACEMENTS: &str = "ev.*.placement.>";

/// Changes of retention policies and holds.
pub const RETENTION: &str = "ev.*.retention.>";

/// Commands of operators to nodes.
pub const NODES: &str = "ev.*.node.>";

/// The messages of nodes to each other about artifacts, which no stream stores.
pub const PEERS: &str = "peer.*";

/// The questions of nodes about an artifact, to all nodes.
pub const PEER_QUESTIONS: &str = "peer.ask";

/// The subject of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject(String);

impl Subject {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tenant in the subject `text`.
    pub fn tenant_of(text: &str) -> Option<Tenant> {
        let mut tokens = text.split('.');
        (tokens.next() == Some("ev")).then_some(())?;
        tokens.next()?.parse().ok()
    }

    /// Whether `text` is a subject of one tenant's object: a run, a capsule, a dead letter or a file.
    pub fn is_of_one_tenant(text: &str) -> bool {
        matches!(
            text.split('.').nth(2),
            Some("run" | "capsule" | "deadletter" | "file")
        )
    }

    /// The run in the subject `text`, if there is one.
    pub fn run_of(text: &str) -> Option<RunId> {
        let mut tokens = text.split('.');
        let (Some("ev"), Some(_), Some("run"), Some(_)) =
            (tokens.next(), tokens.next(), tokens.next(), tokens.next())
        else {
            return None;
        };
        RunId::from_token(tokens.next()?)
    }

    /// The run that the subject `text` is about: its own, or a dead-lettered run.
    pub fn about_run(text: &str) -> Option<RunId> {
        if Self::is_dead_letter(text) {
            return RunId::from_token(text.split('.').nth(3)?);
        }
        Self::run_of(text)
    }

    /// Whether `text` is the subject of a possible first event of a run: `launched`, `requested` or `reused`.
    pub fn begins_run(text: &str) -> bool {
        let begins = |word| matches!(word, "launched" | "requested" | "reused");
        Self::is_state(text) && text.split('.').nth(6).is_some_and(begins)
    }

    /// Whether `text` is the subject of a request that waits for admission.
    pub fn is_request(text: &str) -> bool {
        Self::is_state(text) && text.split('.').nth(6) == Some("requested")
    }

    /// Whether `text` is the subject of a launch, which the work queue receives.
    pub fn is_launch(text: &str) -> bool {
        Self::is_state(text) && text.split('.').nth(6) == Some("launched")
    }

    /// Whether `text` is the subject of a rule event.
    pub fn is_rule(text: &str) -> bool {
        text.split('.').nth(2) == Some("rule")
    }

    /// Whether `text` is the subject of a registration.
    pub fn is_capsule(text: &str) -> bool {
        text.split('.').nth(2) == Some("capsule")
    }

    /// Whether `text` is the subject of a file event.
    pub fn is_file(text: &str) -> bool {
        text.split('.').nth(2) == Some("file")
    }

    /// Whether `text` is the subject of an admission.
    pub fn is_admission(text: &str) -> bool {
        text.split('.').nth(2) == Some("admission")
    }

    /// Whether `text` is the subject of an artifact event.
    pub fn is_artifact(text: &str) -> bool {
        text.split('.').nth(2) == Some("artifact")
    }

    /// Whether `text` is the subject of an operator's action on a dead letter.
    pub fn is_dead_letter(text: &str) -> bool {
        text.split('.').nth(2) == Some("deadletter")
    }

    /// Whether `text` is the subject of the terminal event of a run.
    pub fn is_result(text: &str) -> bool {
        Self::is_state(text) && text.split('.').nth(6) == Some("ended")
    }

    /// Whether `text` is the subject of a spending event.
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

/// Whether `subject` matches `filter`, with the wildcards of NATS.
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

/// The narrowest single filter that covers all `filters`; without filters, one that matches everything.
pub fn covering<'a>(filters: impl IntoIterator<Item = &'a str>) -> String {
    let filters = filters.into_iter().map(str::to_owned);
    let covering = filters.reduce(|one, other| widened(&one, &other));
    covering.unwrap_or_else(|| ALL.to_owned())
}

/// Covers both: a wildcard for each token that differs, and for the rest if one is longer.
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

/// The subjects of `run`, of any tenant.
fn any_run(run: RunId) -> String {
    format!("ev.*.run.{}.{}", run.root().token(), run.token())
}

/// All state events of `run`: its guard covers them.
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
    format!("{}.s.ended", any_run(run))
}

fn run_prefix(tenant: &Tenant, run: RunId) -> String {
    format!("ev.{tenant}.run.{}.{}", run.root().token(), run.token())
}

pub(crate) fn run_event(tenant: &Tenant, run: RunId, kind: &str) -> Subject {
    Subject(format!("{}.s.{kind}", run_prefix(tenant, run)))
}

pub(crate) fn run_launch(tenant: &Tenant, run: RunId, pool: &Pool, class: Class) -> Subject {
    let prefix = run_prefix(tenant, run);
    Subject(format!("{prefix}.s.launched.{pool}.{class}"))
}

pub(crate) fn run_note(tenant: &Tenant, run: RunId, kind: &str) -> Subject {
    Subject(format!("{}.n.{kind}", run_prefix(tenant, run)))
}

/// The events of one capsule name, of any tenant.
pub fn capsule(name: &CapsuleName) -> String {
    format!("ev.*.capsule.{name}.>")
}

/// The events of a capsule of `tenant`.
pub fn capsule_of(tenant: &Tenant, name: &CapsuleName) -> String {
    format!("ev.{tenant}.capsule.{name}.>")
}

pub(crate) fn capsule_event(tenant: &Tenant, name: &CapsuleName, kind: &str) -> Subject {
    Subject(format!("ev.{tenant}.capsule.{name}.{kind}"))
}

/// Actions on the dead letter of `run`: its guard covers them.
pub fn dead_letter(run: RunId) -> String {
    format!("ev.*.deadletter.{}.>", run.token())
}

pub(crate) fn dead_letter_event(tenant: &Tenant, run: RunId, kind: &str) -> Subject {
    Subject(format!("ev.{tenant}.deadletter.{}.{kind}", run.token()))
}

/// The spending events of the tree of `root`: their guard covers them.
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

/// Admissions have no run: one guard covers all of them.
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

/// Events about the queue `queue`.
pub(crate) fn placement_event(queue: &Pool, kind: &str) -> Subject {
    Subject(format!("ev.{CLUSTER}.placement.{queue}.{kind}"))
}

pub(crate) fn retention_event(id: &str, kind: &str) -> Subject {
    Subject(format!("ev.{CLUSTER}.retention.{id}.{kind}"))
}

/// Events about artifacts whose digests have the same first digit as `digest`.
pub fn artifacts_like(digest: Digest) -> String {
    format!("ev.{CLUSTER}.artifact.{:x}.>", first_digit(&digest))
}

/// An event about artifacts whose digests have the same first digit as `first`.
pub(crate) fn artifact_event(first: Option<&Digest>, kind: &str) -> Subject {
    let digit = first.map_or(0, first_digit);
    Subject(format!("ev.{CLUSTER}.artifact.{digit:x}.{kind}"))
}

/// The first hexadecimal digit of a digest.
pub(crate) fn first_digit(digest: &Digest) -> u8 {
    digest.as_bytes()[0] >> 4
}

/// Commands of operators to `node`.
pub fn asked_of(node: NodeId) -> String {
    format!("ev.{CLUSTER}.node.{}.>", node.token())
}

/// The requests of other nodes to `node` for pieces of artifacts.
pub fn peer(node: NodeId) -> String {
    format!("peer.{}", node.token())
}

pub(crate) fn node_event(node: NodeId, kind: &str) -> Subject {
    Subject(format!("ev.{CLUSTER}.node.{}.{kind}", node.token()))
}

/// Roots start new trees; children are called within a tree and go first.
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

/// The name of a pool of nodes, or of the queue of a set of requirements: 1 to 63 of `a-z`, `0-9` and `-`, a token of
/// subjects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Pool(String);

impl Pool {
    /// The default pool, of runs and of nodes.
    pub fn any() -> Self {
        Self("any".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A text that is not a [`Pool`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid pool {0:?}; expected 1 to 63 of a-z, 0-9 and -")]
pub struct MalformedPool(String);

impl std::str::FromStr for Pool {
    type Err = MalformedPool;

    fn from_str(text: &str) -> Result<Self, MalformedPool> {
        if text::is_token(text) {
            Ok(Self(text.into()))
        } else {
            Err(MalformedPool(text.chars().take(80).collect()))
        }
    }
}

impl<'de> Deserialize<'de> for Pool {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn run_is_parsed_from_its_subject() {
        let run = RunId::root_of(Uuid::from_u128(5)).child(&Digest::of("call"));
        let tenant: Tenant = "acme".parse().unwrap();
        let subject = run_launch(&tenant, run, &Pool::any(), Class::Child);
        assert_eq!(Subject::run_of(subject.as_str()), Some(run));
        assert_eq!(Subject::tenant_of(subject.as_str()), Some(tenant.clone()));
        assert!(Subject::is_state(subject.as_str()));
        assert!(is_under(subject.as_str(), &run_state(run)));
        assert!(is_under(subject.as_str(), &self::tree(run)));
        let note = run_note(&tenant, run, "capsule_started");
        assert!(!Subject::is_state(note.as_str()));
        assert!(is_under(note.as_str(), &run_all(run)));
        assert_eq!(Subject::run_of("ev.default.node.x.drained"), None);
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
        check(&["ev.a.s.leased", "ev.a.s.ended"], "ev.a.s.*");
        check(&["ev.a.s.launched.>", "ev.a.s.ended"], "ev.a.s.>");
        check(&["ev.a.s.ended", "ev.a.n.capsule_started"], "ev.a.*.*");
        check(&["ev.a.b.c", "ev.x"], "ev.>");
        check(&["ev.a.s.leased", "ev.a.s.ended", "ev.b.>"], "ev.*.>");
    }

    #[test]
    fn wildcards_are_no_pools() {
        for text in ["", "*", ">", "a.b", "A", "a b", "ä"] {
            assert!(text.parse::<Pool>().is_err(), "{text}");
        }
    }
}
