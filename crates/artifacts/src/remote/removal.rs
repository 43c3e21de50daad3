//! Removes artifacts without undoing a put that has succeeded.
//!
//! An object store removes unconditionally. So a collector first *marks* the artifact, then checks its age,
//! and sends the removal once. A put that finds an old artifact first renews it, then checks for a mark: at
//! least one of the two sees the other. A put of a missing artifact is safe, because a collector checks the
//! age after its mark, and a mark has one owner.
//!
//! A collector that died leaves its mark. It counts as dead when the mark is older than a collector may take,
//! by the store's own times or by observation: puts then continue, and the next collector takes the mark over.

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

/// Maximum time from a collector's mark to its removal; after that the collector fails.
const MARK_TO_REMOVAL_MAX: Duration = Duration::from_secs(20);

/// Maximum time of one removal, which is sent once.
const REMOVAL_MAX: Duration = Duration::from_secs(30);

/// Age of a mark whose collector counts as dead: longer than both together.
const COLLECTOR_DEAD_AFTER: Duration = Duration::from_secs(90);

/// Interval of the checks of a mark.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Prefixes of artifacts, renewals and marks.
const ARTIFACTS: &str = "sha256";
const RENEWED: &str = "renewed";
const MARKED: &str = "marked";

impl Remote {
    /// Renews an artifact if necessary, so that events may name it; returns its size, if the store has it.
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

    /// Renews an artifact of any age; returns its size, if the store still has it.
    pub(super) async fn outlast(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        let renewed = path(RENEWED, digest);
        let put = self.store.put(&renewed, Bytes::new().into());
        put.await.map_err(|error| self.sort(digest, error))?;
        self.wait_for_collector(digest).await?;
        let meta = self.head(digest, &object_path(digest)).await?;
        Ok(meta.map(|meta| meta.size))
    }

    /// Waits until no collector is about to remove the artifact; returns the mark of a dead collector, if any.
    async fn wait_for_collector(&self, digest: Digest) -> Result<Option<ObjectMeta>, StoreError> {
        let mark = path(MARKED, digest);
        let mut watched: Option<(ObjectMeta, Instant)> = None;
        while let Some(found) = self.head(digest, &mark).await? {
            let is_dead = match &watched {
                Some((known, since)) if *known == found => since.elapsed() >= COLLECTOR_DEAD_AFTER,
                _ => self.was_renewed_long_after(digest, &found).await?,
            };
            if is_dead {
                tracing::info!(%digest, "the collector of an artifact has died");
                return Ok(Some(found));
            }
            watched = watched
                .filter(|(known, _)| *known == found)
                .or_else(|| Some((found, Instant::now())));
            sleep(CHECK_INTERVAL).await;
        }
        Ok(None)
    }

    /// Whether the artifact was renewed so long after `mark` that the collector is dead, by the store's times.
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
        // The age counts only from here on.
        let renewed_at = self.renewed_at(digest).await;
        let is_old = matches!(renewed_at, Ok(Some(renewed_at)) if renewed_at < before);
        if !is_old || marked_at.elapsed() > MARK_TO_REMOVAL_MAX {
            self.delete(self.store.as_ref(), digest, &mark).await?;
            return match renewed_at? {
                None => Ok(Removal::Missing),
                Some(_) if is_old => {
                    Err(self.unavailable("the check of an artifact took too long"))
                }
                Some(_) => Ok(Removal::Young),
            };
        }
        // Without an answer the mark stays: the store may still execute the removal.
        let object = object_path(digest);
        let removal = self.delete(self.removing.as_ref(), digest, &object);
        let removed = timeout(REMOVAL_MAX, removal).await;
        removed.map_err(|_| self.unavailable("the store did not answer a removal in time"))??;
        for left in [path(RENEWED, digest), mark] {
            // Another collector may have taken the mark over.
            if marked_at.elapsed() < COLLECTOR_DEAD_AFTER {
                self.delete(self.store.as_ref(), digest, &left).await?;
            }
        }
        self.cache.drop_unused(digest);
        Ok(Removal::Removed)
    }

    /// Marks the artifact, so that only this collector removes it.
    async fn mark(&self, digest: Digest, mark: &Path) -> Result<(), StoreError> {
        let mut mode = PutMode::Create;
        loop {
            // Each mark is unique, so that a mark that was taken over differs from the former.
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

    /// Time of the last put or renewal; none if the artifact is missing.
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

    /// Removes an object; a missing object is fine.
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

/// Path of an entry about an artifact.
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
