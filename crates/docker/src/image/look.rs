//! Reads files of an image: in a container that the engine creates for this and never starts.

use std::io::Read as _;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    ContainerArchiveInfoOptions, CreateContainerOptions, DownloadFromContainerOptions,
    RemoveContainerOptions,
};
use futures::StreamExt as _;
use tokio::sync::MutexGuard;

use crate::engine::{CallError, Engine};

/// Bits of a mode as the engine reports it. Source: Go, `io/fs`, `FileMode`.
const DIRECTORY: u32 = 1 << 31;
const LINK: u32 = 1 << 27;

/// What an image has at a path. The last name of the path is not followed, if it is a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// With its permissions.
    Directory(u32),
    Link,
    Other,
}

/// An image with its files. One look at a time: the container has one name in each program, so that the next look
/// removes what a killed program left behind.
pub(crate) struct Look<'a> {
    engine: &'a Engine,
    container: String,
    _turn: MutexGuard<'a, ()>,
}

impl<'a> Look<'a> {
    /// Uses a container of the name `container`. Call [`Self::end`] afterwards.
    pub(crate) async fn at(
        engine: &'a Engine,
        container: &str,
        image: &str,
    ) -> Result<Self, CallError> {
        let turn = engine.look.lock().await;
        let look = Self {
            engine,
            container: container.to_owned(),
            _turn: turn,
        };
        look.remove().await?;
        let options = CreateContainerOptions {
            name: Some(look.container.clone()),
            ..CreateContainerOptions::default()
        };
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            // Never executed; an image without a command needs one.
            cmd: Some(vec!["none".to_owned()]),
            network_disabled: Some(true),
            ..ContainerCreateBody::default()
        };
        let create = engine.docker.create_container(Some(options), body);
        engine.call(engine.timeouts.create, create).await?;
        Ok(look)
    }

    /// None if nothing is at `path`.
    pub(crate) async fn stat(&self, path: &str) -> Result<Option<Found>, CallError> {
        let options = ContainerArchiveInfoOptions {
            path: path.to_owned(),
        };
        let docker = &self.engine.docker;
        let stat = docker.get_container_archive_info(&self.container, Some(options));
        match self.engine.query(stat).await {
            Ok(stat) if stat.file_mode & LINK != 0 => Ok(Some(Found::Link)),
            Ok(stat) if stat.file_mode & DIRECTORY != 0 => {
                Ok(Some(Found::Directory(stat.file_mode & 0o777)))
            }
            Ok(_) => Ok(Some(Found::Other)),
            Err(error) if error.is_status(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The directory or file at `path` as a tar archive, in which the names begin with the last name of `path`. None if the
    /// archive has more than `size_bytes_max`.
    pub(crate) async fn archive(
        &self,
        path: &str,
        size_bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, CallError> {
        let options = DownloadFromContainerOptions {
            path: path.to_owned(),
        };
        let docker = &self.engine.docker;
        let mut pieces = docker
            .download_from_container(&self.container, Some(options))
            .boxed();
        let mut archive = Vec::new();
        let limit = self.engine.timeouts.stream;
        while let Some(piece) = self.engine.next(limit, &mut pieces).await? {
            if archive.len() + piece.len() > size_bytes_max {
                return Ok(None);
            }
            archive.extend_from_slice(&piece);
        }
        Ok(Some(archive))
    }

    /// The text of the plain file at `path`; none if there is no such file, or no text of at most `size_bytes_max`.
    pub(crate) async fn text(
        &self,
        path: &str,
        size_bytes_max: usize,
    ) -> Result<Option<String>, CallError> {
        if self.stat(path).await? != Some(Found::Other) {
            return Ok(None);
        }
        let Some(archive) = self.archive(path, size_bytes_max).await? else {
            return Ok(None);
        };
        let mut archive = tar::Archive::new(&archive[..]);
        let mut text = String::new();
        let first = archive
            .entries()
            .ok()
            .and_then(|mut entries| entries.next());
        let read = first
            .and_then(Result::ok)
            .map(|mut file| file.read_to_string(&mut text));
        Ok(matches!(read, Some(Ok(_))).then_some(text))
    }

    /// Removes the container.
    pub(crate) async fn end(self) -> Result<(), CallError> {
        self.remove().await
    }

    async fn remove(&self) -> Result<(), CallError> {
        let options = RemoveContainerOptions {
            force: true,
            // The engine makes a volume for each path that the image declares as one.
            v: true,
            link: false,
        };
        let remove = self
            .engine
            .docker
            .remove_container(&self.container, Some(options));
        match self.engine.call(self.engine.timeouts.remove, remove).await {
            Err(error) if error.is_status(404) => Ok(()),
            removed => removed,
        }
    }
}
