//! Builds an image from a packed directory, with the engine's classic builder: every engine from 20.10 on
//! has this builder, and it bounds the memory of each step.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use aod_ports::container_runtime::{ImageBuild, RuntimeError};
use bollard::models::BuildInfo;
use bollard::query_parameters::BuildImageOptions;
use bollard::{Docker, body_try_stream};
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::BuildLimits;
use crate::engine::{CallError, Engine};
use crate::image::{self, ImageFacts, context, layout};
use crate::names::{LABEL_NAME, LABEL_VERSION};
use crate::registries;
use crate::text::beginning;

const ACTION: &str = "building an image";

/// Maximum number of lines of the build that a failure quotes.
const QUOTED_LINES_MAX: usize = 20;

/// Maximum length of a reported line, in bytes; the rest is dropped.
const LINE_SIZE_BYTES_MAX: usize = 4_096;

/// The id of the parents of a pulled image. Source: moby, `image/cache` and `daemon/images/image_history.go`.
const NO_ID: &str = "<missing>";

/// Maximum number of builds for one image, if the engine loses images of its cache while it builds.
const BUILDS_MAX: usize = 5;

/// The input of a build.
pub(crate) struct Build<'a> {
    pub(crate) image: ImageBuild<'a>,
    /// Labels of the image in addition to name and version.
    pub(crate) labels: HashMap<String, String>,
    pub(crate) limits: BuildLimits,
    /// Name of the container in which the image is checked.
    pub(crate) look: String,
    /// Credentials of private registries.
    pub(crate) registries: Option<&'a Path>,
}

/// Builds the image and returns its id.
pub(crate) async fn build(engine: &Engine, build: Build<'_>) -> Result<String, RuntimeError> {
    let end = Instant::now() + Duration::from_secs(build.limits.seconds);
    let cache = cache(engine, &build).await;
    let mut builds = 1;
    loop {
        match build_once(engine, &build, cache.as_ref(), end).await {
            Err(error) if has_lost_cache(&error) && builds < BUILDS_MAX => builds += 1,
            built => return built,
        }
    }
}

/// How the engine says that it lost an image of its cache. Sources: moby, `daemon/internal/image/cache/cache.go`,
/// `daemon/images/image.go`, `daemon/internal/image/store.go`, `daemon/internal/image/fs.go`.
const LOST_IMAGE: [&str; 5] = [
    "unable to find image \"sha256:",
    "No such image: sha256:",
    "unknown parent image ID sha256:",
    "failed to get layer sha256:",
    "failed to get digest sha256:",
];

/// Whether the engine lost an image that it had found in its cache. If another client removes an image during a
/// build, the engine also removes its parents without a name, and the build fails at whichever step needs one next.
/// The author of the capsule cannot prevent that.
fn has_lost_cache(error: &RuntimeError) -> bool {
    let RuntimeError::BuildFailed { message, .. } = error else {
        return false;
    };
    LOST_IMAGE.iter().any(|lost| message.starts_with(lost))
}

/// The earlier version, if it was pulled: its layers are no cache unless the build names it. Layers that were built here
/// are a cache anyhow, together with those of other capsules, which a name would exclude. Source: moby,
/// `image/cache/cache.go`.
async fn cache(engine: &Engine, build: &Build<'_>) -> Option<String> {
    let earlier = build.image.earlier.clone()?;
    let history = engine.query(engine.docker.image_history(&earlier)).await;
    let mut parents = history.ok()?.into_iter().skip(1);
    parents.all(|parent| parent.id == NO_ID).then_some(earlier)
}

async fn build_once(
    engine: &Engine,
    build: &Build<'_>,
    cache: Option<&String>,
    end: Instant,
) -> Result<String, RuntimeError> {
    let (path, dockerfile) = (&build.image.context, &build.image.dockerfile);
    let context = context::stream(path, dockerfile.clone()).await;
    let context = context.map_err(|error| RuntimeError::Engine {
        action: "opening the context of a build",
        source: Box::new(error),
    })?;
    let credentials = build.registries.map(registries::read).transpose();
    let credentials = credentials.map_err(|source| RuntimeError::Engine {
        action: "reading the credentials for registries",
        source,
    })?;
    let docker = with_memory_limit(&engine.docker, build.limits.memory_bytes);
    let body = body_try_stream(context);
    let mut stream = docker
        .build_image(options(build, cache), credentials, Some(body))
        .boxed();
    let mut log = Log {
        lines: VecDeque::new(),
        progress: build.image.progress.clone(),
        unfinished: String::new(),
    };
    let mut id = None;
    let read = async {
        // A step may be silent for any time: only the whole build has a limit.
        while let Some(info) = stream.try_next().await.map_err(CallError::from)? {
            log.take(&info);
            id = info.aux.and_then(|aux| aux.id).or(id.take());
        }
        Ok(())
    };
    match tokio::time::timeout_at(end, read).await {
        // Dropping the stream closes the connection, which stops the build.
        Err(_) => {
            let message = format!(
                "the build did not finish within {} seconds",
                build.limits.seconds
            );
            return Err(log.failure(message));
        }
        Ok(Err(error)) => return Err(log.sort(error)),
        Ok(Ok(())) => (),
    }
    let id = match id {
        Some(id) => id,
        None => id_of_tag(engine, build.image.tag).await?,
    };
    match unfit(engine, build, &id).await? {
        None => Ok(id),
        Some(message) => Err(log.failure(message)),
    }
}

/// Why this node can never start a container of the image: reported to the author now instead of to callers later.
async fn unfit(
    engine: &Engine,
    build: &Build<'_>,
    id: &str,
) -> Result<Option<String>, RuntimeError> {
    let failed = |error: CallError| error.during(ACTION);
    let inspected = image::inspect(engine, id).await.map_err(failed)?;
    let inspected = inspected.unwrap_or_default();
    let size_bytes = inspected.size.and_then(|bytes| u64::try_from(bytes).ok());
    let size_bytes_max = build.limits.image_size_bytes;
    if let Some(size_bytes) = size_bytes.filter(|bytes| *bytes > size_bytes_max) {
        return Ok(Some(format!(
            "the files of the image have {size_bytes} bytes, expected at most {size_bytes_max}; remove files in the step \
             that creates them, or use a smaller base image"
        )));
    }
    let facts = ImageFacts::from(inspected);
    if facts.command.is_empty() {
        let text = "the image has neither ENTRYPOINT nor CMD; set one in the Dockerfile";
        return Ok(Some(text.to_owned()));
    }
    match layout::check(engine, &build.look, id, &facts).await {
        Err(RuntimeError::ImageRefused { message }) => return Ok(Some(message)),
        checked => checked?,
    }
    let version = engine.query(engine.docker.version());
    let version = version.await.map_err(failed)?;
    let here = [version.os, version.arch]
        .map(Option::unwrap_or_default)
        .join("/");
    let platforms = platforms(engine, id).await.map_err(failed)?;
    let other = platforms.into_iter().find(|platform| *platform != here);
    Ok(other.map(|other| {
        format!("the image is for {other}, but this node is {here}; use a base image for {here}")
    }))
}

/// The platforms of an image and of its local parents: the classic builder sets this host's platform on an
/// image whose base is for another processor.
async fn platforms(engine: &Engine, id: &str) -> Result<Vec<String>, CallError> {
    let history = engine.query(engine.docker.image_history(id)).await?;
    let made_here = history
        .into_iter()
        .map(|layer| layer.id)
        .filter(|id| id != NO_ID);
    let mut platforms = Vec::new();
    for id in made_here {
        if let Some(image) = image::inspect(engine, &id).await? {
            platforms.push(ImageFacts::from(image).platform);
        }
    }
    Ok(platforms)
}

/// The id of an image by its tag, for older builders, which do not report the id.
async fn id_of_tag(engine: &Engine, tag: &str) -> Result<String, RuntimeError> {
    let inspected = image::inspect(engine, tag)
        .await
        .map_err(|error| error.during(ACTION))?;
    inspected
        .and_then(|found| found.id)
        .ok_or_else(|| RuntimeError::ImageMissing {
            image: tag.to_owned(),
        })
}

fn options(build: &Build<'_>, cache: Option<&String>) -> BuildImageOptions {
    let version = build
        .image
        .tag
        .rsplit_once(':')
        .map_or("", |(_, version)| version);
    let own = [(LABEL_NAME, build.image.name), (LABEL_VERSION, version)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let labels: HashMap<String, String> = build.labels.clone().into_iter().chain(own).collect();
    BuildImageOptions {
        t: Some(build.image.tag.to_owned()),
        rm: true,
        forcerm: true,
        labels: Some(labels),
        cachefrom: cache.map(|image| vec![image.clone()]),
        ..BuildImageOptions::default()
    }
}

/// A client that bounds the memory of builds. The library's own field has 32 bits: 2 GiB.
fn with_memory_limit(docker: &Docker, memory_bytes: u64) -> Docker {
    docker.clone().with_request_modifier(move |mut request| {
        let limits = format!("memory={memory_bytes}&memswap={memory_bytes}");
        let uri = request.uri();
        let separator = if uri.query().is_some() { '&' } else { '?' };
        let uri = format!("{uri}{separator}{limits}");
        *request.uri_mut() = uri
            .parse()
            .expect("an address with two more numbers is an address");
        request
    })
}

/// The output of the build.
struct Log {
    lines: VecDeque<String>,
    progress: mpsc::Sender<String>,
    unfinished: String,
}

impl Log {
    fn take(&mut self, info: &BuildInfo) {
        if let Some(text) = &info.stream {
            self.unfinished.push_str(text);
            while let Some(end) = self.unfinished.find('\n') {
                let line: String = self.unfinished.drain(..=end).collect();
                self.line(line.trim_end());
            }
            if self.unfinished.len() > LINE_SIZE_BYTES_MAX {
                let line = std::mem::take(&mut self.unfinished);
                self.line(&line);
            }
        }
        if let Some(status) = &info.status {
            self.line(status);
        }
    }

    fn line(&mut self, line: &str) {
        let line = beginning(line, LINE_SIZE_BYTES_MAX);
        if line.trim().is_empty() {
            return;
        }
        if self.lines.len() == QUOTED_LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line.to_owned());
        // A slow reader of the progress loses lines; the build does not wait.
        let _ = self.progress.try_send(line.to_owned());
    }

    fn sort(self, error: CallError) -> RuntimeError {
        match error {
            CallError::Answered { message, .. } if message.contains("no space left on device") => {
                CallError::Answered {
                    status: 507,
                    message,
                }
                .during(ACTION)
            }
            CallError::Answered { message, .. } => self.failure(message),
            other => other.during(ACTION),
        }
    }

    fn failure(mut self, message: String) -> RuntimeError {
        let rest = std::mem::take(&mut self.unfinished);
        self.line(&rest);
        RuntimeError::BuildFailed {
            message,
            last_lines: self.lines.into(),
        }
    }
}
