//! Queries for events of the whole log: by subject with a filter of the broker, and by the remaining conditions event
//! by event.

mod kind;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub use self::kind::{Kind, UnknownKind};
use crate::id::RunId;
use crate::manifest::CapsuleName;
use crate::subject::{self, Subject};
use crate::tenant::Tenant;

/// Maximum clock difference between two hosts for which a search by time finds everything: the log is in the order of
/// appends, and each event has the time of its writer.
pub const CLOCKS_APART_MAX: SignedDuration = SignedDuration::from_mins(5);

/// The runs whose events are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Run(RunId),
    /// A root and all runs below it.
    Tree(RunId),
}

/// The conditions of a query; empty conditions match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Any of these types.
    pub kinds: Vec<&'static Kind>,
    pub tenant: Option<Tenant>,
    /// Only events of tenants, not of the whole cluster.
    pub is_of_tenants_only: bool,
    pub scope: Option<Scope>,
    /// Registrations of this capsule, and all events of its runs.
    pub capsule: Option<CapsuleName>,
    /// All of these labels, on a run or on the root of its tree.
    pub labels: Vec<(String, String)>,
    /// The first wanted time.
    pub since: Option<Timestamp>,
    /// The first time that is no longer wanted.
    pub until: Option<Timestamp>,
    /// All of these words, in lower case, occur in the values of an event.
    pub words: Vec<String>,
}

/// An event to check.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub subject: &'a str,
    pub time: Timestamp,
    pub data: &'a Value,
}

/// Facts from the launch of a run that its later events do not repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFacts {
    pub capsule: CapsuleName,
    pub labels: BTreeMap<String, String>,
}

impl Selection {
    /// The narrowest single filter of the broker for all wanted events.
    pub fn filter(&self) -> String {
        subject::covering(self.filters().iter().map(String::as_str))
    }

    /// Each wanted event matches one of these.
    fn filters(&self) -> Vec<String> {
        let tenant = self.tenant.as_ref().map_or("*", Tenant::as_str);
        if !self.kinds.is_empty() {
            let kinds = self.kinds.iter();
            return kinds
                .map(|kind| kind.filter(tenant, self.scope, self.capsule.as_ref()))
                .collect();
        }
        vec![match self.scope {
            Some(scope) => format!("ev.{tenant}.run.{}.>", scope.tokens()),
            None if tenant == "*" => subject::ALL.to_owned(),
            None => format!("ev.{tenant}.>"),
        }]
    }

    /// Whether the event itself matches.
    pub fn takes(&self, event: &Candidate<'_>) -> bool {
        let is_in_time = self.since.is_none_or(|since| event.time >= since)
            && self.until.is_none_or(|until| event.time < until);
        is_in_time
            && self.takes_subject(event.subject)
            && self.words.iter().all(|word| occurs(word, event.data))
    }

    fn takes_subject(&self, text: &str) -> bool {
        let mut filters = self.filters().into_iter();
        if !filters.any(|filter| subject::is_under(text, &filter)) {
            return false;
        }
        if self.is_of_tenants_only && !Subject::is_of_one_tenant(text) {
            return false;
        }
        let run = Subject::about_run(text);
        let is_in_scope = match (self.scope, run) {
            (None, _) => true,
            (Some(Scope::Run(wanted)), Some(run)) => wanted == run,
            (Some(Scope::Tree(wanted)), Some(run)) => wanted.root() == run.root(),
            (Some(_), None) => false,
        };
        let is_registration = |name: &CapsuleName| {
            let mut tokens = text.split('.').skip(2);
            tokens.next() == Some("capsule") && tokens.next() == Some(name.as_str())
        };
        let is_of_capsule = self
            .capsule
            .as_ref()
            .is_none_or(|name| run.is_some() || is_registration(name));
        is_in_scope && is_of_capsule && (self.labels.is_empty() || run.is_some())
    }

    /// The run whose launch must match too, for an event that [matches](Self::takes).
    pub fn asks_about(&self, subject: &str) -> Option<RunId> {
        let is_asked = self.capsule.is_some() || !self.labels.is_empty();
        Subject::about_run(subject).filter(|_| is_asked)
    }

    /// Whether the launches of `run` and of the `root` of its tree match.
    pub fn takes_launch(&self, run: &LaunchFacts, root: &LaunchFacts) -> bool {
        let is_of_capsule = self
            .capsule
            .as_ref()
            .is_none_or(|name| run.capsule == *name);
        let has = |facts: &LaunchFacts, name: &str, value: &str| {
            facts.labels.get(name).is_some_and(|found| found == value)
        };
        let mut labels = self.labels.iter();
        is_of_capsule && labels.all(|(name, value)| has(run, name, value) || has(root, name, value))
    }

    /// No event before this time is wanted, for any clock of its writer.
    pub fn begins(&self) -> Option<Timestamp> {
        let since = self.since?;
        Some(
            since
                .saturating_sub(CLOCKS_APART_MAX)
                .unwrap_or(Timestamp::MIN),
        )
    }

    /// Whether no wanted event can follow an event of `time`.
    pub fn is_over(&self, time: Timestamp) -> bool {
        let end = self.until.map(|until| {
            until
                .saturating_add(CLOCKS_APART_MAX)
                .unwrap_or(Timestamp::MAX)
        });
        end.is_some_and(|end| time >= end)
    }
}

impl Scope {
    /// Root and run as tokens of a subject.
    fn tokens(self) -> String {
        match self {
            Self::Run(run) => format!("{}.{}", run.root().token(), run.token()),
            Self::Tree(run) => format!("{}.*", run.root().token()),
        }
    }
}

/// The words of `text` for [`Selection::words`].
pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_lowercase).collect()
}

/// Whether `word`, in lower case, occurs in a text or a number of `value`.
fn occurs(word: &str, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(number) => number.to_string().contains(word),
        Value::String(text) => text.to_lowercase().contains(word),
        Value::Array(items) => items.iter().any(|item| occurs(word, item)),
        Value::Object(members) => members.values().any(|member| occurs(word, member)),
    }
}
