//! Reports deleted artifacts, and renews artifacts before an event names them again.

use std::collections::{BTreeMap, BTreeSet};

use aod_api::problem::ProblemItem;
use aod_domain::artifacts::Named;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_ports::artifact_store::StoreError;
use aod_services::retention;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::context::Context;
use crate::error::{Error, Result};
use aod_services::error::chain;

/// Number of concurrent renewals: an image has up to 127 artifacts.
const RENEWED_AT_ONCE: usize = 16;

/// The error for the caller; for a deleted artifact, it contains the time of the deletion.
pub(crate) async fn explained(context: &Context, error: StoreError) -> Error {
    let StoreError::Missing { digest } = error else {
        return error.into();
    };
    match when(context, digest).await {
        Some(text) => Error::new(ErrorCode::ArtifactDeleted, text),
        None => error.into(),
    }
}

/// Text with the time at which the artifact was deleted; none if it was not deleted.
async fn when(context: &Context, digest: Digest) -> Option<String> {
    let mut texts = deleted(context, &BTreeSet::from([digest])).await;
    texts.remove(&digest)
}

/// Texts with the time of deletion for the deleted ones of `asked`; empty if the log does not answer.
async fn deleted(context: &Context, asked: &BTreeSet<Digest>) -> BTreeMap<Digest, String> {
    if asked.is_empty() {
        return BTreeMap::new();
    }
    let found = match retention::deleted(context.runs.log().as_ref(), asked).await {
        Ok(found) => found,
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(error, "cannot read the deletions of artifacts");
            return BTreeMap::new();
        }
    };
    let texts = found.into_iter().map(|(digest, at)| {
        let at = at.strftime("%Y-%m-%d %H:%M:%SZ");
        let text = format!("the artifact {digest} was deleted at {at}");
        (digest, text)
    });
    texts.collect()
}

/// Renews artifacts before an event names them again. The error lists all deleted ones; readers detect artifacts that
/// are missing for another reason.
pub(crate) async fn renew(
    context: &Context,
    what: &str,
    named: impl IntoIterator<Item = Named>,
) -> Result<()> {
    let artifacts = context.ports.artifacts.as_ref();
    let digests: BTreeSet<Digest> = named.into_iter().map(|named| named.digest).collect();
    let renewals: Vec<_> = digests
        .iter()
        .map(|&digest| artifacts.renew(digest))
        .collect();
    let renewed = stream::iter(renewals).buffered(RENEWED_AT_ONCE);
    let renewed: Vec<Option<u64>> = renewed.try_collect().await?;
    let renewed = digests.into_iter().zip(renewed);
    let missing = renewed.filter_map(|(digest, size_bytes)| size_bytes.is_none().then_some(digest));
    let missing: BTreeSet<Digest> = missing.collect();
    let gone = deleted(context, &missing).await;
    let errors: Vec<ProblemItem> = gone
        .into_values()
        .map(|text| ProblemItem::new("", text))
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "{what} is incomplete: garbage collection deleted {} of its artifacts",
        errors.len()
    );
    Err(Error::new(ErrorCode::ArtifactDeleted, detail).with_errors(errors))
}

/// Renews an artifact; returns a text with the time of its deletion, if it was deleted.
pub(crate) async fn lost(context: &Context, digest: Digest) -> Result<Option<String>> {
    match context.ports.artifacts.renew(digest).await? {
        Some(_) => Ok(None),
        None => Ok(when(context, digest).await),
    }
}

/// Renews artifacts; returns whether any of them is missing or damaged, for whatever reason.
pub(crate) async fn any_lost(context: &Context, digests: &[Digest]) -> Result<bool> {
    let artifacts = context.ports.artifacts.as_ref();
    let renewals: Vec<_> = digests
        .iter()
        .map(|&digest| artifacts.renew_intact(digest))
        .collect();
    let mut renewed = stream::iter(renewals).buffered(RENEWED_AT_ONCE);
    while let Some(size_bytes) = renewed.try_next().await? {
        if size_bytes.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
