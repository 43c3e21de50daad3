//! Which events of the whole log somebody wants to see: as far as their subjects tell by a filter of the
//! broker, and for the rest event by event.

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

/// How far the clocks of two hosts may be apart for a search by time to find everything: the log is in the
/// order of the appends, and each event has the time of its writer.
pub const CLOCKS_APART_MAX: SignedDuration = SignedDuration::from_mins(5);

/// The runs that events are wanted of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Run(RunId),
    /// A root and all below it.
    Tree(RunId),
}

/// What must hold for an event; what is empty does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Any of these types.
    pub kinds: Vec<&'static Kind>,
    pub tenant: Option<Tenant>,
    /// Whether whoever asks must see nothing but what one tenant has: not what is of the whole cluster.
    pub is_of_tenants_only: bool,
    pub scope: Option<Scope>,
    /// Registrations of this capsule, and everything about its runs.
    pub capsule: Option<CapsuleName>,
    /// Labels that a run or the root of its tree has, all of them.
    pub labels: Vec<(String, String)>,
    /// The first time that is wanted.
    pub since: Option<Timestamp>,
    /// The first time that is not wanted any more.
    pub until: Option<Timestamp>,
    /// Words that occur in the values of an event, all of them, in lower case.
    pub words: Vec<String>,
}

/// An event that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub subject: &'a str,
    pub time: Timestamp,
    pub data: &'a Value,
}

/// What the launch of a run says that its later events do not repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFacts {
    pub capsule: CapsuleName,
    pub labels: BTreeMap<String, String>,
}

impl Selection {
    /// Everything that is wanted, and as little else as one filter of the broker can have.
    pub fn filter(&self) -> String {
        subject::covering(self.filters().iter().map(String::as_str))
    }

    /// One of these is above each event that is wanted.
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

    /// Whether the event itself says nothing against it.
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

    /// The run whose launch must be looked at too, for an event that it [takes](Self::takes).
    pub fn asks_about(&self, subject: &str) -> Option<RunId> {
        let is_asked = self.capsule.is_some() || !self.labels.is_empty();
        Subject::about_run(subject).filter(|_| is_asked)
    }

    /// Whether what `run`, and the `root` of its tree, were launched with says nothing against it.
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

    /// No event before one of this time is wanted, however its writer's clock goes.
    pub fn begins(&self) -> Option<Timestamp> {
        let since = self.since?;
        Some(
            since
                .saturating_sub(CLOCKS_APART_MAX)
                .unwrap_or(Timestamp::MIN),
        )
    }

    /// Whether nothing is wanted that follows an event of `time`.
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

/// The words of `text`, as [`Selection::words`] has them.
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
