//! A node that cannot run what it has taken on gives it back with the reason, as long as another node may do better.
//!
//! Whoever has refused a run leaves it to others for as long as there are any. The last one ends it, with what it lacks.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use aod_domain::error_code::ErrorCode;
use aod_domain::id::{NodeId, RunId};
use aod_domain::placement::fits;
use aod_domain::run::{Placement, REFUSALS_MAX, Refused, RunError};
use serde_json::{Value, json};

use crate::attempt::{Attempt, Finish};
use crate::shared::Shared;

/// Runs that are remembered; of more the oldest may come once more, and is refused again.
const REMEMBERED_MAX: usize = 1_024;

/// What one node may lack and another have.
const REASONS: [ErrorCode; 3] = [
    ErrorCode::SecretMissing,
    ErrorCode::ImageUserRefused,
    ErrorCode::NodeUnfit,
];

/// The runs that this node has refused since it was started.
#[derive(Debug, Default)]
pub(crate) struct RefusedRuns(Mutex<VecDeque<RunId>>);

impl RefusedRuns {
    pub(crate) fn has(&self, run: RunId) -> bool {
        self.lock().contains(&run)
    }

    fn add(&self, run: RunId) {
        let mut runs = self.lock();
        if runs.len() >= REMEMBERED_MAX {
            runs.pop_front();
        }
        runs.push_back(run);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<RunId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `error` is about this node.
pub(crate) fn is_refusal(error: &RunError) -> bool {
    REASONS.iter().any(|reason| reason.as_str() == error.code)
}

/// How an attempt ends that this node cannot run for `error`.
pub(crate) async fn refuse(attempt: &Attempt, error: RunError) -> Finish {
    let (shared, run) = (&attempt.shared, &attempt.run);
    let refused = Refused {
        attempt: attempt.number,
        node: shared.id,
        error,
    };
    let placement = &run.launched.event.placement;
    let is_last = run.refusals.len() + 1 >= REFUSALS_MAX;
    if !is_last && others_may_take(shared, placement, &run.refusals).await {
        shared.refused.add(run.id);
        return Finish::Refused(Box::new(refused));
    }
    let error = with_others(refused.error, &run.refusals);
    let ended = attempt.ended(aod_domain::run::Outcome::Failed, Some(error));
    Finish::Ended(Box::new(ended))
}

/// Whether a node is there that takes work, has what `placement` requires, and is not among those that refused.
pub(crate) async fn others_may_take(
    shared: &Shared,
    placement: &Placement,
    refusals: &[Refused],
) -> bool {
    let refused: BTreeSet<NodeId> = refusals.iter().map(|refused| refused.node).collect();
    let others = shared.neighbours.others(shared).await;
    others.iter().any(|node| {
        let Placement {
            label,
            class,
            requirements,
            ..
        } = placement;
        let is_open = node.takes(*class) && !refused.contains(&node.node);
        is_open && fits(label, requirements, &node.labels, &node.place.equipment).is_ok()
    })
}

/// The last refusal, and those before it.
fn with_others(error: RunError, before: &[Refused]) -> RunError {
    if before.is_empty() {
        return error;
    }
    let refusals: Vec<Value> = before
        .iter()
        .map(|refused| {
            let Refused { node, error, .. } = refused;
            json!({"node": node, "code": error.code, "message": error.message})
        })
        .collect();
    let text = format!(
        "{}; {} other nodes refused it before",
        error.message,
        before.len()
    );
    let error = RunError {
        message: text,
        ..error
    };
    error.with_detail(json!({"refusals": refusals})).bounded()
}
