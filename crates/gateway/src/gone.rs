//! Artifacts that are not there any more, and those that are named once more.

use std::collections::{BTreeMap, BTreeSet};

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
    match when(context, digest).await {
        Some(text) => ApiError::new(ErrorCode::ArtifactCollected, text),
        None => error.into(),
    }
}

/// When the artifact was collected, in words; none if it never was.
async fn when(context: &Context, digest: Digest) -> Option<String> {
    let mut told = collected(context, &BTreeSet::from([digest])).await;
    told.remove(&digest)
}

/// When artifacts were collected, in words, of those that ever were; nothing if the log does not answer.
async fn collected(context: &Context, asked: &BTreeSet<Digest>) -> BTreeMap<Digest, String> {
    if asked.is_empty() {
        return BTreeMap::new();
    }
    let found = match retention::collected(context.runs.log().as_ref(), asked).await {
        Ok(found) => found,
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(error, "what was collected cannot be looked up");
            return BTreeMap::new();
        }
    };
    let told = found.into_iter().map(|(digest, at)| {
        let at = at.strftime("%Y-%m-%d %H:%M:%SZ");
        let text = format!("the artifact {digest} was collected at {at}");
        (digest, text)
    });
    told.collect()
}

/// Makes sure that artifacts can be named in an event once more. All that were collected are told; what is missing
/// for another reason is found out by whoever needs it.
pub(crate) async fn renew(
    context: &Context,
    what: &str,
    named: impl IntoIterator<Item = Named>,
) -> ApiResult<()> {
    let artifacts = context.ports.artifacts.as_ref();
    let mut missing = BTreeSet::new();
    for named in named {
        if artifacts.renew(named.digest).await?.is_none() {
            missing.insert(named.digest);
        }
    }
    let gone = collected(context, &missing).await;
    let errors: Vec<ProblemItem> = gone
        .into_values()
        .map(|text| ProblemItem::new("", text))
        .collect();
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
        None => Ok(when(context, digest).await),
    }
}
