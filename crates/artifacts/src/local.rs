//! A directory as the store: a synced rename makes a spool file the object, and the object is also the
//! local file. Processes and hosts may share the directory.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_domain::digest::Digest;
use aod_domain::disk::Space;
use aod_ports::artifact_store::{
    ArtifactStore, Content, Incoming, Listing, LocalFile, Removal, StoreError, Stored,
};
use aod_services::disk;
use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;

use crate::OpenError;
use crate::shelf::{Durability, Shelf, check_size};
use crate::spool::{self, Spool, Spooled, blocking};
use crate::stream as content;

/// Artifacts in a directory.
#[derive(Debug)]
pub(crate) struct LocalStore {
    objects: Arc<Shelf>,
    spool: Arc<Spool>,
}

impl LocalStore {
    pub(crate) fn open(directory: &Path) -> Result<Self, OpenError> {
        let unusable = |source| OpenError::Directory {
            path: directory.to_owned(),
            source,
        };
        disk::make_chosen_private(directory).map_err(unusable)?;
        let objects = Shelf::open(directory, Durability::Synced).map_err(unusable)?;
        let spool = Spool::open(&directory.join("spool")).map_err(unusable)?;
        Ok(Self {
            objects: Arc::new(objects),
            spool: Arc::new(spool),
        })
    }

    async fn install(&self, spooled: Spooled) -> Result<Stored, StoreError> {
        let objects = Arc::clone(&self.objects);
        blocking(move || install(&objects, &spooled)).await
    }
}

#[async_trait]
impl ArtifactStore for LocalStore {
    async fn put_stream(&self, bytes: Incoming<'_>) -> Result<Stored, StoreError> {
        let spooled = self.spool.write_stream(bytes).await?;
        self.install(spooled).await
    }

    async fn put_reader(&self, mut reader: Box<dyn Read + Send>) -> Result<Stored, StoreError> {
        let (objects, spool) = (Arc::clone(&self.objects), Arc::clone(&self.spool));
        blocking(move || install(&objects, &spool.write_reader(&mut reader)?)).await
    }

    async fn put_file(&self, path: &Path, known: Option<Stored>) -> Result<Stored, StoreError> {
        let (objects, spool) = (Arc::clone(&self.objects), Arc::clone(&self.spool));
        let path: PathBuf = path.to_owned();
        blocking(move || {
            let given = spool::adopt(&path, known)?;
            match objects.install(&given) {
                Ok(()) => Ok(given.stored),
                Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
                    let copied = spool.copy(&given)?;
                    let stored = install(&objects, &copied)?;
                    spool::discard(&given)?;
                    Ok(stored)
                }
                Err(error) => Err(StoreError::from_io(&objects.place(), error)),
            }
        })
        .await
    }

    async fn get_stream(
        &self,
        digest: Digest,
        range: Option<Range<u64>>,
    ) -> Result<Content, StoreError> {
        let objects = Arc::clone(&self.objects);
        let opened = blocking(move || content::open(&objects.path(digest))).await;
        let opened = opened.map_err(|error| StoreError::from_io(&self.objects.place(), error))?;
        let (file, size_bytes) = opened.ok_or(StoreError::Missing { digest })?;
        content::of_file(
            file,
            self.objects.place(),
            Stored { digest, size_bytes },
            range.as_ref(),
            (),
        )
    }

    async fn get_file(&self, digest: Digest, size_bytes: u64) -> Result<LocalFile, StoreError> {
        let objects = Arc::clone(&self.objects);
        let verified = blocking(move || objects.verified(digest)).await?;
        let (path, stored) = verified.ok_or(StoreError::Missing { digest })?;
        check_size(stored, size_bytes)?;
        Ok(LocalFile::new(path, stored, ()))
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        let objects = Arc::clone(&self.objects);
        let opened = blocking(move || content::open(&objects.path(digest))).await;
        let opened = opened.map_err(|error| StoreError::from_io(&self.objects.place(), error))?;
        Ok(opened.map(|(_, size_bytes)| size_bytes))
    }

    async fn renew(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        let objects = Arc::clone(&self.objects);
        let renewed = blocking(move || objects.renew(digest)).await;
        renewed.map_err(|error| StoreError::from_io(&self.objects.place(), error))
    }

    async fn renew_intact(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        let objects = Arc::clone(&self.objects);
        match blocking(move || objects.verified(digest)).await {
            Ok(Some(_)) => self.renew(digest).await,
            Ok(None) | Err(StoreError::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        let objects = Arc::clone(&self.objects);
        let shards = stream::iter(0..=u8::MAX).then(move |first| {
            let objects = Arc::clone(&objects);
            blocking(move || {
                let listed = objects.list(first);
                listed.map_err(|error| StoreError::from_io(&objects.place(), error))
            })
        });
        let listed = shards.map_ok(|shard| stream::iter(shard.into_iter().map(Ok)));
        Ok(listed.try_flatten().boxed())
    }

    async fn remove(&self, digest: Digest, before: Timestamp) -> Result<Removal, StoreError> {
        let objects = Arc::clone(&self.objects);
        let removed = blocking(move || objects.remove_old(digest, before.into())).await;
        removed.map_err(|error| StoreError::from_io(&self.objects.place(), error))
    }

    async fn space(&self) -> Result<Option<Space>, StoreError> {
        let objects = Arc::clone(&self.objects);
        let space = blocking(move || objects.space()).await;
        space
            .map(Some)
            .map_err(|error| StoreError::from_io(&self.objects.place(), error))
    }

    async fn check(&self) -> Result<(), StoreError> {
        let stored = self.put_reader(Box::new(std::io::empty())).await?;
        self.get_file(stored.digest, 0).await.map(|_| ())
    }

    fn spool_directory(&self) -> &Path {
        self.spool.directory()
    }
}

fn install(objects: &Shelf, spooled: &Spooled) -> Result<Stored, StoreError> {
    objects
        .install(spooled)
        .map_err(|error| StoreError::from_io(&objects.place(), error))?;
    Ok(spooled.stored)
}
