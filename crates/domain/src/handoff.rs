//! A call from one capsule to another: its key, and what may not be called.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::canonical;
use crate::digest::{Digest, Hasher};
use crate::error_code::ErrorCode;
use crate::file_name::FileName;
use crate::manifest::CapsuleName;

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
    /// What is called with what: equal for equal calls, whoever makes them.
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

/// Where a run stands in its tree: how deep, and which calls led to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The signatures of the calls from the root to this run, its own last.
    pub signatures: Vec<Digest>,
}

impl Lineage {
    /// 0 for a root.
    pub fn depth(&self) -> u32 {
        u32::try_from(self.signatures.len().saturating_sub(1)).expect("bounded by DEPTH_MAX")
    }

    /// The lineage of a callee, unless the call would nest too deep or go round in circles.
    pub fn descend(&self, signature: Digest) -> Result<Self, ErrorCode> {
        if self.depth() >= DEPTH_MAX {
            return Err(ErrorCode::CallTooDeep);
        }
        if self.signatures.contains(&signature) {
            return Err(ErrorCode::CallCycle);
        }
        let mut signatures = self.signatures.clone();
        signatures.push(signature);
        Ok(Self { signatures })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn signature(target: &str, arguments: &Value) -> Digest {
        let target = target.parse().unwrap();
        Call {
            target: &target,
            arguments,
            files: &BTreeMap::new(),
        }
        .signature()
    }

    #[test]
    fn the_order_of_arguments_does_not_matter() {
        let one = signature("b", &json!({"x": 1, "y": 2}));
        assert_eq!(
            one,
            signature("b", &serde_json::from_str(r#"{"y": 2, "x": 1}"#).unwrap())
        );
        assert_ne!(one, signature("c", &json!({"x": 1, "y": 2})));
    }

    #[test]
    fn a_cycle_is_the_same_call_again() {
        let root = Lineage {
            signatures: vec![signature("a", &json!({}))],
        };
        let below = root.descend(signature("b", &json!({}))).unwrap();
        assert_eq!(
            below.descend(signature("a", &json!({}))),
            Err(ErrorCode::CallCycle)
        );
        assert!(below.descend(signature("a", &json!({"n": 1}))).is_ok());
    }

    #[test]
    fn nesting_ends_at_the_limit() {
        let mut lineage = Lineage {
            signatures: vec![signature("a", &json!(0))],
        };
        for depth in 1..=DEPTH_MAX {
            lineage = lineage.descend(signature("a", &json!(depth))).unwrap();
            assert_eq!(lineage.depth(), depth);
        }
        assert_eq!(
            lineage.descend(signature("a", &json!("more"))),
            Err(ErrorCode::CallTooDeep)
        );
    }

    proptest! {
        #[test]
        fn occurrences_differ(signature: [u8; 4], one: u32, other: u32) {
            let signature = Digest::of(signature);
            prop_assert_eq!(one == other, derived_key(&signature, one) == derived_key(&signature, other));
        }
    }
}
