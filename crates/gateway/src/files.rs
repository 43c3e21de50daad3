//! Access to files by digest: a caller can use only files that its own tenant has.
//!
//! The store knows only contents. The read model knows the files of the runs, capsules and uploads of each tenant; a
//! check of an unknown file waits until the read model is current.

pub(crate) mod deleted_artifacts;

use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::CloudEvent;
use aod_domain::file::Event;
use aod_ports::artifact_store::{ArtifactStore, Stored};
use aod_ports::event_log::{Append, Guard};

use crate::context::Context;
use crate::error::{Error, Result};
use aod_domain::access::Principal;

/// The files that a request may name by their digests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Files<'a> {
    /// The files of the principal's tenant.
    Of(&'a Context, &'a Principal),
    /// All files.
    #[cfg(feature = "fuzzing")]
    All(&'a dyn ArtifactStore),
}

impl Files<'_> {
    /// Renews a file before an event names it again, and returns its size; none if the tenant has no such file.
    pub(crate) async fn renew(&self, digest: Digest) -> Result<Option<u64>> {
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

/// Rejects a file that the tenant of `principal` does not have, as if it were missing in the store.
pub(crate) async fn check(context: &Context, principal: &Principal, digest: Digest) -> Result<()> {
    if is_known(context, principal, digest).await? {
        return Ok(());
    }
    let text = format!("the artifact store has no {digest}");
    Err(Error::new(ErrorCode::UnknownFile, text))
}

async fn is_known(context: &Context, principal: &Principal, digest: Digest) -> Result<bool> {
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

/// Records an upload, once for each tenant.
pub(crate) async fn uploaded(
    context: &Context,
    principal: &Principal,
    stored: Stored,
) -> Result<()> {
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
