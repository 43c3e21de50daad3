//! The buckets that one request needs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Facts, Rule, RuleKey};
use crate::id::RunId;
use crate::subject::Class;

/// The highest priority; the lowest is its negative.
pub const PRIORITY_MAX: i8 = 100;

/// How a request waits for admission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// Priority among waiting requests, from -100 to 100; callees have the priority of their caller.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i8,
    /// The buckets that the run needs; without any, the run does not wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<RuleKey>,
    /// Buckets that a run above it holds: a callee shares them with its caller, and never waits for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<Held>,
}

/// A bucket, and the run that holds a place in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Held {
    #[serde(flatten)]
    pub bucket: RuleKey,
    pub run: RunId,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(priority: &i8) -> bool {
    *priority == 0
}

impl Admission {
    /// The admission that a request for a run of `class` needs by `rules`; none if nothing is worth storing. `shared`
    /// are the buckets of the runs above it.
    pub fn of<'a>(
        rules: impl IntoIterator<Item = &'a Rule>,
        facts: &Facts<'_>,
        priority: i8,
        shared: Vec<Held>,
        class: Class,
    ) -> Option<Self> {
        let is_root = class == Class::Root;
        let rules = rules.into_iter();
        let buckets = rules.filter(|rule| is_root || rule.is_for_callees());
        let buckets = buckets.filter_map(|rule| {
            let bucket = rule.bucket(facts)?;
            let is_needed = rule.rate.is_some() || !shared.iter().any(|held| held.bucket == bucket);
            is_needed.then_some(bucket)
        });
        let admission = Self {
            priority,
            buckets: buckets.collect(),
            shared,
        };
        (admission != Self::default()).then_some(admission)
    }

    /// The buckets that callees of `run`, which has this admission, share.
    pub fn shared_below(&self, run: RunId) -> Vec<Held> {
        let above = self.shared.iter().map(|held| &held.bucket);
        let above: BTreeSet<&RuleKey> = above.collect();
        let own = self.buckets.iter().filter(|bucket| !above.contains(bucket));
        let own = own.map(|bucket| Held {
            bucket: bucket.clone(),
            run,
        });
        let mut shared: Vec<Held> = self.shared.iter().cloned().chain(own).collect();
        shared.sort_unstable();
        shared
    }

    pub fn must_wait(&self) -> bool {
        !self.buckets.is_empty()
    }
}
