//! Whose files are: a digest opens nothing to somebody who could not have it from their own tenant.
//!
//! The store knows contents only. The lists know which of them runs, capsules and uploads of each tenant have;
//! what they do not know, they are given time to take in.

use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::CloudEvent;
use aod_domain::file::Event;
use aod_ports::artifact_store::{ArtifactStore, Stored};
use aod_ports::event_log::{Append, Guard};

use crate::context::Context;
use crate::http::access::Principal;
use crate::http::error::{ApiError, ApiResult};

/// The files that a request may name by their digests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Files<'a> {
    /// Those of whoever asks.
    Of(&'a Context, &'a Principal),
    /// All that there are.
    #[cfg(feature = "fuzzing")]
    All(&'a dyn ArtifactStore),
}

impl Files<'_> {
    /// Makes sure that a file can be named once more, and tells its size; none if there is none, as far as whoever
    /// asks may know.
    pub(crate) async fn renew(&self, digest: Digest) -> ApiResult<Option<u64>> {
        let store: &dyn ArtifactStore = match self {
            Self::Of(context, principal) if !is_known(context, principal, digest).await? => {
                return Ok(None);
            }
            Self::Of(context, _) => context.ports.artifacts.as_ref(),
            #[cfg(feature = "fuzzing")]
            Self::All(store) => *store,
        };
        Ok(store.renew(digest).await?)
    }
}

/// As what is not in the store, unless the tenant of `principal` has it.
pub(crate) async fn check(
    context: &Context,
    principal: &Principal,
    digest: Digest,
) -> ApiResult<()> {
    if is_known(context, principal, digest).await? {
        return Ok(());
    }
    let text = format!("the artifact store has no {digest}");
    Err(ApiError::new(ErrorCode::UnknownFile, text))
}

async fn is_known(context: &Context, principal: &Principal, digest: Digest) -> ApiResult<bool> {
    let Some(tenant) = principal.scope.tenant() else {
        return Ok(true);
    };
    let lists = &context.read_model;
    if lists.has_file(tenant, digest).await? {
        return Ok(true);
    }
    let fill = context.runs.log().fill().await?;
    lists.wait_for(fill.last_sequence).await?;
    lists.has_file(tenant, digest).await
}

/// Takes note of an upload, once for each tenant.
pub(crate) async fn uploaded(
    context: &Context,
    principal: &Principal,
    stored: Stored,
) -> ApiResult<()> {
    let Stored { digest, size_bytes } = stored;
    let tenant = principal.tenant();
    if context.read_model.has_file(&tenant, digest).await? {
        return Ok(());
    }
    let event = Event::Uploaded {
        digest,
        size_bytes,
        requested_by: principal.name.clone(),
    };
    let subject = event.subject(&tenant);
    let about = format!("file/{digest}");
    let event = CloudEvent::new(context.runs.header(), about, None, event);
    let append = Append::of(subject, Guard::None, &event);
    let append = append.expect("a digest and a name fit an event");
    context.runs.log().append(append).await?;
    Ok(())
}
