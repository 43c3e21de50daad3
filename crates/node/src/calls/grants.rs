//! The bounds in a capsule's list of callees: the number of calls, and the time for each.
//!
//! The list was registered with the image. The node enforces it, because it sees all calls of an attempt in order; a
//! gateway does not.

use std::collections::{BTreeMap, BTreeSet};

use aod_api::internal::Target;
use aod_domain::capsule::{Grant, Handoffs};
use aod_domain::digest::Digest;
use aod_domain::manifest::{self, CapsuleName};

/// The grants with bounds of a run.
#[derive(Debug, Default)]
pub(crate) struct Grants(Vec<Grant>);

/// The bounds of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) target: CapsuleName,
    pub(crate) calls_max: Option<u32>,
    pub(crate) timeout_seconds: Option<u32>,
}

/// The counted calls of an attempt, by target.
#[derive(Debug, Default)]
pub(crate) struct Counted(BTreeMap<CapsuleName, BTreeSet<Digest>>);

impl Grants {
    /// The bounded grants in a list of callees.
    pub(crate) fn of(handoffs: &Handoffs) -> Self {
        let Handoffs::Listed(grants) = handoffs else {
            return Self::default();
        };
        let is_bounded =
            |grant: &&Grant| grant.calls_max.is_some() || grant.timeout_seconds.is_some();
        Self(grants.iter().filter(is_bounded).cloned().collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bounds of a call of `target`, if any.
    pub(crate) fn bounds(&self, target: &str, targets: &[Target]) -> Option<Bounds> {
        let called = resolve(target, targets)?;
        let mut grants = self.0.iter();
        let grant = grants.find(|grant| resolve(&grant.target, targets) == Some(called))?;
        Some(Bounds {
            target: called.clone(),
            calls_max: grant.calls_max,
            timeout_seconds: grant.timeout_seconds,
        })
    }
}

impl Counted {
    /// Counts a call. False if it exceeds its bounds.
    pub(crate) fn add(&mut self, bounds: &Bounds, key: Digest) -> bool {
        let made = self.0.entry(bounds.target.clone()).or_default();
        let is_within = bounds
            .calls_max
            .is_none_or(|calls_max| made.len() < calls_max as usize);
        is_within && made.insert(key)
    }

    /// Removes a call that was refused.
    pub(crate) fn remove(&mut self, key: &Digest) {
        for made in self.0.values_mut() {
            made.remove(key);
        }
    }
}

/// The capsule that a text names.
pub(crate) fn resolve<'a>(text: &str, targets: &'a [Target]) -> Option<&'a CapsuleName> {
    let registered = targets.iter().map(|target| manifest::Registered {
        name: &target.name,
        title: target.title.as_deref(),
        aliases: &target.aliases,
    });
    manifest::resolve(text, registered).ok()
}
