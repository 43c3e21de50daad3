//! A call from one capsule to another: its key, who may make it, and what becomes of it when the caller runs again.

mod permission;
mod renewal;

use std::collections::BTreeMap;

use serde_json::Value;

pub use self::permission::{Refusal, check, check_not_cancelled, handoffs, permits, speaks_for};
pub use self::renewal::{Found, RENEWALS_MAX, found, is_final, renewed_key};
use crate::contract::canonical;
use crate::digest::{Digest, Hasher};
use crate::file_name::FileName;
pub use crate::lineage::Lineage;
use crate::name::CapsuleName;

/// Deepest nesting of calls; the root is at 0.
pub const DEPTH_MAX: u32 = 16;

/// Calls that one run may have in flight.
pub const CALLS_IN_FLIGHT_MAX: usize = 256;

/// Runs in one tree.
pub const TREE_RUNS_MAX: u64 = 10_000;

/// What a call is, apart from when it is made: the same call of the same attempt is told apart
/// by counting, so that a caller that is run again meets its former callees.
#[derive(Clone, Debug, PartialEq)]
pub struct Call<'a> {
    pub target: &'a CapsuleName,
    /// The arguments after defaults.
    pub arguments: &'a Value,
    pub files: &'a BTreeMap<FileName, Digest>,
}

impl Call<'_> {
    /// The hash of target, arguments and files: equal for equal calls of any caller.
    pub fn signature(&self) -> Digest {
        let mut hasher = Hasher::new();
        hasher.field(self.target.as_str().as_bytes());
        hasher.field(&canonical(self.arguments));
        for (name, digest) in self.files {
            hasher.field(name.as_str().as_bytes());
            hasher.field(digest.as_bytes());
        }
        hasher.finish()
    }
}

/// The key of a call that its caller gave.
pub fn given_key(idempotency_key: &str) -> Digest {
    let mut hasher = Hasher::new();
    hasher.field(b"given");
    hasher.field(idempotency_key.as_bytes());
    hasher.finish()
}

/// The key of the `occurrence`th (from 0) of the calls of one attempt that share a signature.
pub fn derived_key(signature: &Digest, occurrence: u32) -> Digest {
    let mut hasher = Hasher::new();
    hasher.field(b"derived");
    hasher.field(signature.as_bytes());
    hasher.field(&occurrence.to_be_bytes());
    hasher.finish()
}

impl Lineage {
    /// The lineage of a callee of `target`.
    ///
    /// # Errors
    /// [`Refusal::TooDeep`], or [`Refusal::Cycle`] when a run above made the same call.
    pub fn descend(&self, target: &CapsuleName, signature: Digest) -> Result<Self, Refusal> {
        if self.depth() >= DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        if self.signatures.contains(&signature) {
            let target = target.clone();
            return Err(Refusal::Cycle { target });
        }
        let mut signatures = self.signatures.clone();
        signatures.push(signature);
        Ok(Self { signatures })
    }
}

#[cfg(test)]
mod tests;
