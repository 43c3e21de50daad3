//! What the list of a capsule grants beyond a name: how many calls, and how long each.
//!
//! The list is the one registered with the image. It is kept here, where all calls of an attempt pass:
//! a gateway sees those of others, and each a moment late.

use std::collections::{BTreeMap, BTreeSet};

use aod_api::internal::Target;
use aod_domain::capsule::{Grant, Handoffs};
use aod_domain::digest::Digest;
use aod_domain::manifest::{self, CapsuleName};
use aod_domain::run::Work;

/// The grants of a run that have bounds.
#[derive(Debug, Default)]
pub(crate) struct Grants(Vec<Grant>);

/// The bounds of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) target: CapsuleName,
    pub(crate) calls_max: Option<u32>,
    pub(crate) timeout_seconds: Option<u32>,
}

/// The calls of an attempt by whom they call, where they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counted(BTreeMap<CapsuleName, BTreeSet<Digest>>);

impl Grants {
    pub(crate) fn of(work: &Work) -> Self {
        let Work::Capsule {
            handoffs: Handoffs::Listed(grants),
            ..
        } = work
        else {
            return Self(Vec::new());
        };
        let is_bounded =
            |grant: &&Grant| grant.calls_max.is_some() || grant.timeout_seconds.is_some();
        Self(grants.iter().filter(is_bounded).cloned().collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bounds of a call of `target`, where it has any.
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
    /// Takes note of one more call; whether it is within its bounds.
    pub(crate) fn add(&mut self, bounds: &Bounds, key: Digest) -> bool {
        let made = self.0.entry(bounds.target.clone()).or_default();
        let is_within = bounds
            .calls_max
            .is_none_or(|calls_max| made.len() < calls_max as usize);
        is_within && made.insert(key)
    }

    /// A call that has not come about.
    pub(crate) fn remove(&mut self, key: &Digest) {
        for made in self.0.values_mut() {
            made.remove(key);
        }
    }
}

/// Whom a text means.
pub(crate) fn resolve<'a>(text: &str, targets: &'a [Target]) -> Option<&'a CapsuleName> {
    let registered = targets.iter().map(|target| manifest::Registered {
        name: &target.name,
        title: target.title.as_deref(),
        aliases: &target.aliases,
    });
    manifest::resolve(text, registered).ok()
}
