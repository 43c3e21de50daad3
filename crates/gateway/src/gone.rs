//! Artifacts that are not there any more, and those that are named once more.

use std::collections::BTreeSet;

use aod_api::problem::ProblemItem;
use aod_domain::artifacts::Named;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_ports::artifact_store::StoreError;
use aod_ports::retention::{self, RetentionError};

use crate::context::Context;
use crate::http::error::{ApiError, ApiResult, chain};

impl From<RetentionError> for ApiError {
    fn from(error: RetentionError) -> Self {
        match error {
            RetentionError::Read(error) => error.into(),
            RetentionError::Damaged { sequence, .. } => {
                let text = format!("the event {sequence} about keeping is damaged");
                Self::new(ErrorCode::Internal, text).because(error)
            }
        }
    }
}

/// The refusal for `error`: of an artifact that was collected, it says so.
pub(crate) async fn explained(context: &Context, error: StoreError) -> ApiError {
    let StoreError::Missing { digest } = error else {
        return error.into();
    };
    match collected(context, digest).await {
        Some(text) => ApiError::new(ErrorCode::ArtifactCollected, text),
        None => error.into(),
    }
}

/// When the artifact was collected, in words; none if it never was, or the log does not answer.
async fn collected(context: &Context, digest: Digest) -> Option<String> {
    let (log, asked) = (context.runs.log(), BTreeSet::from([digest]));
    match retention::collected(log.as_ref(), &asked).await {
        Ok(found) => found.get(&digest).map(|at| {
            let at = at.strftime("%Y-%m-%d %H:%M:%SZ");
            format!("the artifact {digest} was collected at {at}")
        }),
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "what was collected cannot be looked up"
            );
            None
        }
    }
}

/// Makes sure that artifacts can be named in an event once more. All that were collected are told; what is missing
/// for another reason is found out by whoever needs it.
pub(crate) async fn renew(
    context: &Context,
    what: &str,
    named: impl IntoIterator<Item = Named>,
) -> ApiResult<()> {
    let mut errors = Vec::new();
    for named in named {
        if let Some(text) = lost(context, named.digest).await? {
            errors.push(ProblemItem::new("", text));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "{what} is not whole any more: {} of its artifacts were collected",
        errors.len()
    );
    Err(ApiError::new(ErrorCode::ArtifactCollected, detail).with_errors(errors))
}

/// Renews an artifact; in words since when it is gone, if it was collected.
pub(crate) async fn lost(context: &Context, digest: Digest) -> ApiResult<Option<String>> {
    match context.ports.artifacts.renew(digest).await? {
        Some(_) => Ok(None),
        None => Ok(collected(context, digest).await),
    }
}
