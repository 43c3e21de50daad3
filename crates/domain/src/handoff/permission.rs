//! Whether a run may call a capsule now, and which run a token speaks for.

use thiserror::Error;

use super::{DEPTH_MAX, RENEWALS_MAX, TREE_RUNS_MAX};
use crate::capsule::Handoffs;
use crate::digest::Digest;
use crate::error_code::ErrorCode;
use crate::id::RunId;
use crate::manifest::CapsuleName;
use crate::run::{Holder, Run, Work};

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("{caller} was cancelled by {requested_by}")]
    CallerCancelled { caller: RunId, requested_by: String },
    #[error("{caller} may not call {target}: {}", permitted(.listed))]
    NotListed {
        caller: CapsuleName,
        target: CapsuleName,
        /// What the caller's `tools.yaml` lists.
        listed: Vec<String>,
    },
    #[error("the caller is {DEPTH_MAX} calls below its root, the maximum depth")]
    TooDeep,
    #[error("the tree of {root} has {TREE_RUNS_MAX} runs, the maximum")]
    TreeFull { root: RunId },
    #[error(
        "infinite recursion: {target} is called with the same arguments and files by a run above the caller"
    )]
    Cycle { target: CapsuleName },
    #[error("AOD has retried the call {RENEWALS_MAX} times, the maximum")]
    RenewedTooOften,
}

impl Refusal {
    /// The code of the error that the caller gets.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::CallerCancelled { .. } => ErrorCode::Cancelled,
            Self::NotListed { .. } => ErrorCode::TargetNotAllowed,
            Self::TooDeep => ErrorCode::CallTooDeep,
            Self::TreeFull { .. } | Self::RenewedTooOften => ErrorCode::TooManyCalls,
            Self::Cycle { .. } => ErrorCode::CallCycle,
        }
    }
}

fn permitted(listed: &[String]) -> String {
    if listed.is_empty() {
        return "its tools.yaml lists no capsules".to_owned();
    }
    format!("its tools.yaml lists {}", listed.join(", "))
}

/// The calls that `caller` may make, as registered with its own image; a build may make none.
pub fn handoffs(caller: &Run) -> &Handoffs {
    const NONE: &Handoffs = &Handoffs::Listed(Vec::new());
    match &caller.launched.event.work {
        Work::Capsule { handoffs, .. } => handoffs,
        Work::Build { .. } => NONE,
    }
}

/// Whether `handoffs` permit a call of `target`; `resolve` finds the capsule that a grant names.
pub fn permits(
    handoffs: &Handoffs,
    target: &CapsuleName,
    resolve: impl Fn(&str) -> Option<CapsuleName>,
) -> bool {
    match handoffs {
        Handoffs::Open => true,
        Handoffs::Listed(grants) => grants
            .iter()
            .any(|grant| resolve(&grant.target).as_ref() == Some(target)),
    }
}

/// Checks whether `caller` may call `target`, whose tree has `tree_runs` runs.
///
/// # Errors
/// The first reason against it; none of them passes by itself.
pub fn check(
    caller: &Run,
    target: &CapsuleName,
    tree_runs: u64,
    resolve: impl Fn(&str) -> Option<CapsuleName>,
) -> Result<(), Refusal> {
    check_not_cancelled(caller)?;
    let handoffs = handoffs(caller);
    if !permits(handoffs, target, resolve) {
        let listed = match handoffs {
            Handoffs::Listed(grants) => grants.iter().map(|grant| grant.target.clone()).collect(),
            Handoffs::Open => Vec::new(),
        };
        return Err(Refusal::NotListed {
            caller: caller.launched.event.work.name().clone(),
            target: target.clone(),
            listed,
        });
    }
    if caller.launched.event.lineage.depth() >= DEPTH_MAX {
        return Err(Refusal::TooDeep);
    }
    if tree_runs >= TREE_RUNS_MAX {
        let root = caller.id.root();
        return Err(Refusal::TreeFull { root });
    }
    Ok(())
}

/// A cancelled run starts nothing.
pub fn check_not_cancelled(caller: &Run) -> Result<(), Refusal> {
    match &caller.cancel {
        None => Ok(()),
        Some(cancel) => Err(Refusal::CallerCancelled {
            caller: caller.id,
            requested_by: cancel.requested_by.clone(),
        }),
    }
}

/// Whether the token with the hash `token_sha256` speaks for `attempt` of `run`: a node holds its lease, and drew the
/// token.
pub fn speaks_for(run: &Run, attempt: u32, token_sha256: &Digest) -> bool {
    let lease = run.lease().filter(|lease| lease.event.attempt == attempt);
    match lease.map(|lease| &lease.event.holder) {
        Some(Holder::Node {
            token_sha256: drawn,
            ..
        }) => drawn.is_same_secret(token_sha256),
        _ => false,
    }
}
