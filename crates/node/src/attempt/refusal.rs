//! Refusals: a node that cannot run a launch returns it with the reason, as long as another node may be able to run it.
//! The last node ends the run with its reason.

use aod_domain::error_code::ErrorCode;
use aod_domain::run::{Outcome, REFUSALS_MAX, Refused, RunError};
use serde_json::{Value, json};

use crate::attempt::{Attempt, Finish};

/// Reasons that may not apply to another node.
const REASONS: [ErrorCode; 3] = [
    ErrorCode::SecretMissing,
    ErrorCode::ImageUserRefused,
    ErrorCode::NodeUnfit,
];

/// Whether `error` is about this node.
pub(crate) fn is_refusal(error: &RunError) -> bool {
    REASONS.iter().any(|reason| reason.as_str() == error.code)
}

/// The end of an attempt that this node cannot run because of `error`.
pub(crate) async fn refuse(attempt: &Attempt, error: RunError) -> Finish {
    let (shared, run) = (&attempt.shared, &attempt.run);
    let refused = Refused {
        attempt: attempt.number,
        node: shared.id,
        error,
    };
    let placement = &run.launched.event.placement;
    let is_last = run.refusals.len() + 1 >= REFUSALS_MAX;
    if !is_last && shared.others.may_take(placement, &run.refusals).await {
        shared.others.leave(run.id);
        return Finish::Refused(Box::new(refused));
    }
    let error = with_others(refused.error, &run.refusals);
    let ended = attempt.ended(Outcome::Failed, Some(error));
    Finish::Ended(Box::new(ended))
}

/// The last refusal, with the earlier ones as its detail.
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
    let (last, count) = (error.message, before.len());
    let message = format!("{last}; earlier refusals by other nodes: {count}");
    let error = RunError { message, ..error };
    error.with_detail(json!({"refusals": refusals})).bounded()
}
