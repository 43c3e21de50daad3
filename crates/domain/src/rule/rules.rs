//! The rules of a cluster: set and removed by name, at most [`RULES_MAX`].

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::{Event, RULES_MAX, Rule};
use crate::chain::Chain;
use crate::digest::Digest;
use crate::event::Recorded;
use crate::name::RuleName;
use crate::subject::{self, Subject};

/// All rules, computed from their events.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    by_name: BTreeMap<RuleName, Rule>,
    last: Option<(u64, Digest)>,
}

impl Rules {
    /// The rules, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.by_name.values()
    }

    pub(crate) fn get(&self, name: &RuleName) -> Option<&Rule> {
        self.by_name.get(name)
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The sequence of the last event of a rule; 0 without one.
    pub fn sequence(&self) -> u64 {
        self.last.map_or(0, |(sequence, _)| sequence)
    }

    /// Skips an event that cannot be read.
    pub fn skip(&mut self, sequence: u64, hash: Digest) {
        self.last = self.last.max(Some((sequence, hash)));
    }
}

impl Chain for Rules {
    type Event = Event;
    type Broken = Infallible;

    fn name(&self) -> String {
        "the rules".to_owned()
    }

    fn filter(&self) -> String {
        subject::RULES.to_owned()
    }

    fn subject(&self, event: &Event) -> Subject {
        event.subject()
    }

    fn about(&self, event: &Event) -> String {
        format!("rule/{}", event.name())
    }

    fn last(&self) -> Option<(u64, Digest)> {
        self.last
    }

    fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), Infallible> {
        if recorded.sequence <= self.sequence() {
            return Ok(());
        }
        self.last = Some((recorded.sequence, recorded.hash));
        match recorded.event {
            Event::Set { rule, .. } => drop(self.by_name.insert(rule.name.clone(), rule)),
            Event::Removed { name, .. } => drop(self.by_name.remove(&name)),
        }
        Ok(())
    }
}

/// Why a change of the rules is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("there are {RULES_MAX} rules, the maximum: remove one first")]
    TooMany,
    #[error("there is no rule {0}")]
    Unknown(RuleName),
}

/// Checks that `event` may be stored next.
///
/// # Errors
/// The [`Rejection`].
pub fn check(rules: &Rules, event: &Event) -> Result<(), Rejection> {
    let is_known = rules.by_name.contains_key(event.name());
    match event {
        Event::Set { .. } if !is_known && rules.by_name.len() >= RULES_MAX => {
            Err(Rejection::TooMany)
        }
        Event::Removed { name, .. } if !is_known => Err(Rejection::Unknown(name.clone())),
        Event::Set { .. } | Event::Removed { .. } => Ok(()),
    }
}
