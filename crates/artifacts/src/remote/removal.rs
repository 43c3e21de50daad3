//! Removing, so that no put is undone that has succeeded.
//!
//! An object store removes without asking. So a collector *marks* what it is about to remove, looks at its age
//! only then, and sends the removal once. Whoever finds an old artifact in its place renews it first, and looks
//! for a mark only then: of the two at least one sees the other. What is not there is put anew; nobody removes
//! it then, since its age is looked at behind the mark, and a mark has one owner.
//!
//! A collector that died leaves its mark. It counts as dead when its mark is older, by the store's own times or
//! watched for as long, than a collector may take: whoever puts goes on then, and the next collector takes the
//! mark over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aod_domain::digest::Digest;
use aod_ports::BoxError;
use aod_ports::artifact_store::{Listed, Listing, Removal, StoreError};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, UpdateVersion};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::{Remote, object_path};
use crate::error::from_object_store;

/// How long a collector may take from its mark to its removal; after that it gives up.
const MARK_TO_REMOVAL_MAX: Duration = Duration::from_secs(20);

/// How long one removal may take: it is sent once, and never again.
const REMOVAL_MAX: Duration = Duration::from_secs(30);

/// How old a mark is when its collector counts as dead: longer than both together.
const COLLECTOR_DEAD_AFTER: Duration = Duration::from_secs(90);

/// How often a mark is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where artifacts are, and what says that one was named anew, or is being removed.
const ARTIFACTS: &str = "sha256";
const RENEWED: &str = "renewed";
const MARKED: &str = "marked";

impl Remote {
    /// The size of an artifact that may be named from now on; none if the store does not have it.
    pub(super) async fn renewed(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        let Some(meta) = self.head(digest, &object_path(digest)).await? else {
            return Ok(None);
        };
        if self.is_young(&meta) {
            return Ok(Some(meta.size));
        }
        match self.head(digest, &path(RENEWED, digest)).await? {
            Some(renewed) if self.is_young(&renewed) => Ok(Some(meta.size)),
            _ => self.outlast(digest).await,
        }
    }

    fn is_young(&self, meta: &ObjectMeta) -> bool {
        let age = SystemTime::now().duration_since(meta.last_modified.into());
        age.unwrap_or_default() < self.renewed_after
    }

    /// Renews an artifact whatever its age; its size, if it is still there then.
    pub(super) async fn outlast(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        let renewed = path(RENEWED, digest);
        let put = self.store.put(&renewed, Bytes::new().into());
        put.await.map_err(|error| self.sort(digest, error))?;
        self.wait_for_collector(digest).await?;
        let meta = self.head(digest, &object_path(digest)).await?;
        Ok(meta.map(|meta| meta.size))
    }

    /// Waits until nobody is about to remove the artifact; the mark of a collector that is dead, if there is one.
    async fn wait_for_collector(&self, digest: Digest) -> Result<Option<ObjectMeta>, StoreError> {
        let mark = path(MARKED, digest);
        let mut watched: Option<(ObjectMeta, Instant)> = None;
        while let Some(found) = self.head(digest, &mark).await? {
            let is_dead = match &watched {
                Some((known, since)) if *known == found => since.elapsed() >= COLLECTOR_DEAD_AFTER,
                _ => self.was_renewed_long_after(digest, &found).await?,
            };
            if is_dead {
                tracing::info!(%digest, "whoever was removing an artifact is gone");
                return Ok(Some(found));
            }
            watched = watched
                .filter(|(known, _)| *known == found)
                .or_else(|| Some((found, Instant::now())));
            sleep(LOOK_EVERY).await;
        }
        Ok(None)
    }

    /// Whether the artifact was renewed so long after `mark` was put that its collector is dead: the store's times.
    async fn was_renewed_long_after(
        &self,
        digest: Digest,
        mark: &ObjectMeta,
    ) -> Result<bool, StoreError> {
        let renewed = self.head(digest, &path(RENEWED, digest)).await?;
        let since = renewed.and_then(|renewed| {
            let (renewed, marked) = (renewed.last_modified, mark.last_modified);
            (renewed - marked).to_std().ok()
        });
        Ok(since.is_some_and(|since| since >= COLLECTOR_DEAD_AFTER))
    }

    pub(super) async fn remove(
        &self,
        digest: Digest,
        before: Timestamp,
    ) -> Result<Removal, StoreError> {
        match self.renewed_at(digest).await? {
            None => return Ok(Removal::Missing),
            Some(renewed_at) if renewed_at >= before => return Ok(Removal::Young),
            Some(_) => (),
        }
        let mark = path(MARKED, digest);
        self.mark(digest, &mark).await?;
        let marked_at = Instant::now();
        // Only what is seen from here on counts.
        let renewed_at = self.renewed_at(digest).await;
        let is_old = matches!(renewed_at, Ok(Some(renewed_at)) if renewed_at < before);
        if !is_old || marked_at.elapsed() > MARK_TO_REMOVAL_MAX {
            self.delete(self.store.as_ref(), digest, &mark).await?;
            return match renewed_at? {
                None => Ok(Removal::Missing),
                Some(_) if is_old => Err(self.unavailable("looking at an artifact took too long")),
                Some(_) => Ok(Removal::Young),
            };
        }
        // Without an answer the mark stays: the removal may still come.
        let object = object_path(digest);
        let removal = self.delete(self.removing.as_ref(), digest, &object);
        let removed = timeout(REMOVAL_MAX, removal).await;
        removed.map_err(|_| self.unavailable("a removal was not answered"))??;
        for left in [path(RENEWED, digest), mark] {
            // By then another collector may have taken the mark over.
            if marked_at.elapsed() < COLLECTOR_DEAD_AFTER {
                self.delete(self.store.as_ref(), digest, &left).await?;
            }
        }
        self.cache.drop_unused(digest);
        Ok(Removal::Removed)
    }

    /// Says that this collector alone removes the artifact.
    async fn mark(&self, digest: Digest, mark: &Path) -> Result<(), StoreError> {
        let mut mode = PutMode::Create;
        loop {
            // Each mark is another one, so that one that was taken over is told from the former.
            let owner = Bytes::from(Uuid::now_v7().simple().to_string());
            match self.store.put_opts(mark, owner.into(), mode.into()).await {
                Ok(_) => return Ok(()),
                Err(
                    Error::AlreadyExists { .. }
                    | Error::Precondition { .. }
                    | Error::NotFound { .. },
                ) => (),
                Err(error) => return Err(self.sort(digest, error)),
            }
            let dead = self.wait_for_collector(digest).await?;
            mode = dead.map_or(PutMode::Create, |mark| {
                PutMode::Update(UpdateVersion {
                    e_tag: mark.e_tag,
                    version: mark.version,
                })
            });
        }
    }

    /// When the artifact was last put or renewed; none if it is not there.
    async fn renewed_at(&self, digest: Digest) -> Result<Option<Timestamp>, StoreError> {
        let Some(put) = self.head(digest, &object_path(digest)).await? else {
            return Ok(None);
        };
        let renewed = self.head(digest, &path(RENEWED, digest)).await?;
        let renewed = renewed.map(|meta| modified(&meta));
        Ok(Some(modified(&put).max(renewed.unwrap_or(Timestamp::MIN))))
    }

    /// All artifacts.
    pub(super) async fn list(self: &Arc<Self>) -> Result<Listing, StoreError> {
        let sort = |remote: &Self, error| remote.sort(Digest::of([]), error);
        let mut renewed: HashMap<Digest, Timestamp> = HashMap::new();
        let mut listed = self.store.list(Some(&Path::from(RENEWED)));
        while let Some(meta) = listed.try_next().await.map_err(|error| sort(self, error))? {
            renewed.extend(digest_of(&meta).map(|digest| (digest, modified(&meta))));
        }
        let remote = Arc::clone(self);
        let listed = self.store.list(Some(&Path::from(ARTIFACTS)));
        let listed = listed.map(move |meta| meta.map_err(|error| sort(&remote, error)));
        let artifacts = listed.try_filter_map(move |meta| {
            let found = digest_of(&meta).map(|digest| Listed {
                digest,
                size_bytes: meta.size,
                renewed_at: modified(&meta)
                    .max(renewed.get(&digest).copied().unwrap_or(Timestamp::MIN)),
            });
            std::future::ready(Ok(found))
        });
        Ok(artifacts.boxed())
    }

    async fn head(&self, digest: Digest, path: &Path) -> Result<Option<ObjectMeta>, StoreError> {
        match self.store.head(path).await {
            Ok(meta) => Ok(Some(meta)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.sort(digest, error)),
        }
    }

    /// What is not there is removed already.
    async fn delete(
        &self,
        store: &dyn ObjectStore,
        digest: Digest,
        path: &Path,
    ) -> Result<(), StoreError> {
        match store.delete(path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.sort(digest, error)),
        }
    }

    fn sort(&self, digest: Digest, error: Error) -> StoreError {
        from_object_store(&self.place, digest, error)
    }

    fn unavailable(&self, why: &'static str) -> StoreError {
        StoreError::Unavailable {
            place: self.place.clone(),
            source: BoxError::from(why),
        }
    }
}

/// What says something of an artifact.
fn path(what: &str, digest: Digest) -> Path {
    format!("{what}/{digest}").into()
}

fn digest_of(meta: &ObjectMeta) -> Option<Digest> {
    meta.location.filename()?.parse().ok()
}

fn modified(meta: &ObjectMeta) -> Timestamp {
    let modified = Timestamp::try_from(SystemTime::from(meta.last_modified));
    modified.unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
