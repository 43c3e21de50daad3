//! The benchmark `images`: storing and fetching the versions of a capsule with a large layer of dependencies.
//!
//! The floor of a fetch is what a node did before images had layers: it loaded one archive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use aod_artifacts::CacheConfig;
use aod_docker::{Config, DockerRuntime};
use aod_domain::capsule::{Image, ImageContent};
use aod_domain::id::NodeId;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::{Clock as _, SystemClock};
use aod_ports::container_runtime::{ContainerRuntime as _, ImageBuild, ImagePush};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::docker::SOCKET;
use crate::report::Measurement;
use aod_tests::progress::say;

/// Its name.
pub(crate) const NAME: &str = "images";

/// Versions of the capsule.
const VERSIONS: usize = 50;

/// Measured rebuilds and fetches of single layers.
const ROUNDS: usize = 5;

/// Measured fetches of whole images.
const COLD_ROUNDS: usize = 3;

/// Size of the capsule's own files, in bytes: the layer that a version changes.
const OWN_BYTES: usize = 4 << 20;

/// A static busybox. Source: Debian's package `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

/// 300 MiB that do not compress, as the libraries of a capsule in Python.
const LIBRARIES: &str = "COPY busybox /bin/busybox\n\
    RUN [\"/bin/busybox\", \"dd\", \"if=/dev/urandom\", \"of=/libraries\", \"bs=1048576\", \"count=300\"]\n";

pub(crate) async fn measure() -> anyhow::Result<Vec<Measurement>> {
    let desk = Desk::open().await?;
    say("==> images: rebuild");
    let mut versions = vec![desk.make(LIBRARIES, 0, None).await?];
    let first_bytes = desk.stored_bytes()?;
    for version in 1..=ROUNDS {
        versions.push(desk.make(LIBRARIES, version, None).await?);
    }
    let rebuilt = &versions[1..];
    let grown = desk.stored_bytes()? - first_bytes;
    let changed = rebuilt
        .iter()
        .map(|made| made.changed_bytes(&versions[0]))
        .sum();
    let mut measured = vec![
        Measurement::new(
            "store_after_rebuild",
            "s",
            &seconds(rebuilt, |made| made.store_seconds),
        )?
        .beside(
            "build_image",
            &seconds(rebuilt, |made| made.store_seconds),
            &seconds(rebuilt, |made| made.build_seconds),
        )?
        .bounded("p50 <= 2 s")?
        .noted("what a rebuild costs after Docker's own build"),
        bytes("stored_for_versions", grown, changed, "ratio <= 1.1")?
            .noted("what the store grew by, to the changed layers"),
    ];
    let before = desk.stored_bytes()?;
    measured.push(warm(&desk, &versions).await?);
    // The images of one layer are no versions of the capsule.
    let others_bytes = desk.stored_bytes()? - before;
    measured.push(cold(&desk, &versions[0].image).await?);
    say("==> images: fifty versions");
    // As a node does: the engine has only one version, which it fetched.
    let earlier = versions[0].image.config_digest.clone();
    for version in versions.len()..VERSIONS {
        let made = desk.make(LIBRARIES, version, Some(&earlier)).await?;
        versions.push(made);
    }
    let layer = versions[1].changed_bytes(&versions[0]);
    let allowed = first_bytes + VERSIONS as u64 * layer;
    measured.push(bytes(
        "stored_for_fifty_versions",
        desk.stored_bytes()? - others_bytes,
        allowed,
        "ratio <= 1",
    )?);
    Ok(measured)
}

/// A node with all layers but the last one, beside a node that fetches only such a layer.
async fn warm(desk: &Desk, versions: &[Made]) -> anyhow::Result<Measurement> {
    say("==> images: node with all layers but the last");
    let (mut fetched, mut alone) = (Vec::new(), Vec::new());
    for (round, version) in versions[1..].iter().enumerate() {
        let single = desk.make("", VERSIONS + round, None).await?;
        for (image, samples) in [(&version.image, &mut fetched), (&single.image, &mut alone)] {
            remove(&image.config_digest)?;
            samples.push(desk.fetch(image).await?);
        }
    }
    Measurement::new("fetch_last_layer", "s", &fetched)?
        .beside("fetch_image_of_one_layer", &fetched, &alone)?
        .bounded("ratio <= 1.2")
}

/// A node without any layer, beside a node that loads one archive.
async fn cold(desk: &Desk, image: &Image) -> anyhow::Result<Measurement> {
    say("==> images: node without layers");
    let path = desk.directory.path().join("image.tar");
    let shown = path.display().to_string();
    docker(&["save", "-o", &shown, &image.config_digest])?;
    let stored = desk.artifacts.put_file(&path, None).await?;
    let archive = Image {
        config_digest: image.config_digest.clone(),
        content: ImageContent::Archive {
            archive: stored.digest,
            archive_size_bytes: stored.size_bytes,
        },
    };
    let (mut layers, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..COLD_ROUNDS {
        for (image, samples) in [(image, &mut layers), (&archive, &mut whole)] {
            desk.remove_all()?;
            samples.push(desk.fetch(image).await?);
        }
    }
    // The archive is no part of the versions.
    fs::remove_file(desk.object(&stored.digest.to_string()))?;
    Measurement::new("fetch_image", "s", &layers)?
        .beside("load_archive", &layers, &whole)?
        .bounded("ratio <= 1")
}

fn bytes(name: &str, found: u64, allowed: u64, bound: &str) -> anyhow::Result<Measurement> {
    #[expect(clippy::cast_precision_loss, reason = "sizes of files")]
    let [found, allowed] = [found, allowed].map(|bytes| bytes as f64 / f64::from(1 << 20));
    Measurement::new(name, "MiB", &[found])?
        .beside("layers", &[found], &[allowed])?
        .bounded(bound)
}

fn seconds(versions: &[Made], of: impl Fn(&Made) -> f64) -> Vec<f64> {
    versions.iter().map(of).collect()
}

/// A version that was built and stored.
struct Made {
    image: Image,
    build_seconds: f64,
    store_seconds: f64,
}

impl Made {
    /// The bytes of its layers that `first` does not have.
    fn changed_bytes(&self, first: &Self) -> u64 {
        let layers = |image: &Image| match &image.content {
            ImageContent::Layers { layers, .. } => layers.clone(),
            ImageContent::Archive { .. } => Vec::new(),
        };
        let known = layers(&first.image);
        let own = layers(&self.image);
        let own = own.iter().filter(|layer| !known.contains(layer));
        own.map(|layer| layer.size_bytes).sum()
    }
}

/// An engine with a store, both for one benchmark. Drop removes its images.
struct Desk {
    runtime: DockerRuntime,
    artifacts: Arc<dyn ArtifactStore>,
    cluster: String,
    directory: TempDir,
}

impl Drop for Desk {
    fn drop(&mut self) {
        // The rest is for the operator to remove: a drop cannot fail.
        let _ = self.remove_all();
    }
}

impl Desk {
    async fn open() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path();
        // No container is started.
        fs::write(path.join("aod-gate"), "")?;
        let id = SystemClock.fresh_uuid();
        let cluster = format!("bench-{}", id.simple());
        let config = Config::new(
            SOCKET.into(),
            cluster.clone(),
            NodeId::new(id),
            path.to_owned(),
            path.join("hosts"),
        );
        let cache = CacheConfig {
            directory: path.join("cache"),
            bytes_max: 1,
        };
        let url = format!("file://{}", path.join("artifacts").display());
        Ok(Self {
            runtime: DockerRuntime::connect(config).await?,
            artifacts: aod_artifacts::open(&url, &cache)?,
            cluster,
            directory,
        })
    }

    /// Builds and stores a version with own files of its own. The build may reuse layers of `earlier`.
    async fn make(
        &self,
        libraries: &str,
        version: usize,
        earlier: Option<&str>,
    ) -> anyhow::Result<Made> {
        let context = self.context(libraries, version)?;
        let tag = format!("aod/{}:{version}", self.cluster);
        let (progress, mut lines) = mpsc::channel(1_000);
        let discarding = tokio::spawn(async move { while lines.recv().await.is_some() {} });
        let began = Instant::now();
        let build = ImageBuild {
            earlier: earlier.map(str::to_owned),
            ..ImageBuild::new(context, "bench", &tag, progress.clone())
        };
        let id = self.runtime.build_image(build).await?;
        let build_seconds = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let push = ImagePush {
            image: &id,
            artifacts: &self.artifacts,
            progress,
        };
        let image = self.runtime.store_image(push).await?;
        let store_seconds = began.elapsed().as_secs_f64();
        discarding.await?;
        Ok(Made {
            image,
            build_seconds,
            store_seconds,
        })
    }

    /// The packed directory of a version.
    fn context(&self, libraries: &str, version: usize) -> anyhow::Result<PathBuf> {
        let directory = self.directory.path().join("capsule");
        fs::create_dir_all(directory.join("app"))?;
        let label = format!("LABEL dev.aod.cluster={}", self.cluster);
        let dockerfile =
            format!("FROM scratch\n{label}\n{libraries}COPY app /app\nCMD [\"/app/main\"]\n");
        fs::write(directory.join("Dockerfile"), dockerfile)?;
        fs::copy(BUSYBOX, directory.join("busybox")).context("install busybox-static")?;
        let mut random = fastrand::Rng::with_seed(version as u64);
        let mut own = vec![0; OWN_BYTES];
        random.fill(&mut own);
        fs::write(directory.join("app/data"), own)?;
        fs::write(directory.join("app/main"), format!("version {version}\n"))?;
        let context = self.directory.path().join("context.tar");
        let packed = Command::new("tar")
            .arg("-cf")
            .arg(&context)
            .arg("-C")
            .arg(&directory)
            .arg(".")
            .status()?;
        anyhow::ensure!(packed.success(), "tar: {packed}");
        Ok(context)
    }

    /// Seconds until the engine has the image, which it must not have before.
    async fn fetch(&self, image: &Image) -> anyhow::Result<f64> {
        let is_here = self.runtime.has_image(&image.config_digest).await?;
        anyhow::ensure!(!is_here, "the engine already has the image");
        let began = Instant::now();
        self.runtime.fetch_image(image, &self.artifacts).await?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Size of all artifacts.
    fn stored_bytes(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for shard in fs::read_dir(self.directory.path().join("artifacts/sha256"))? {
            for file in fs::read_dir(shard?.path())? {
                bytes += file?.metadata()?.len();
            }
        }
        Ok(bytes)
    }

    fn object(&self, digest: &str) -> PathBuf {
        let objects = Path::new("artifacts/sha256");
        self.directory
            .path()
            .join(objects)
            .join(&digest[..2])
            .join(digest)
    }

    /// Removes all images of this benchmark, each after those that are based on it.
    fn remove_all(&self) -> anyhow::Result<()> {
        let filter = format!("label=dev.aod.cluster={}", self.cluster);
        for _ in 0..VERSIONS {
            let images = docker(&["images", "-aq", "--no-trunc", "--filter", &filter])?;
            if images.is_empty() {
                return Ok(());
            }
            for image in images.lines() {
                // The engine keeps an image that another one is based on.
                let _ = remove(image);
            }
        }
        anyhow::bail!("images of {} cannot be removed", self.cluster)
    }
}

fn remove(image: &str) -> anyhow::Result<()> {
    docker(&["rmi", "-f", image]).map(drop)
}

fn docker(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("docker")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("docker does not start")?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "docker {arguments:?}: {error}");
    Ok(String::from_utf8(output.stdout)?)
}
