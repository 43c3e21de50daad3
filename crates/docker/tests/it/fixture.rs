//! A cluster for one test: a connected adapter, images with busybox, directories of runs, and cleanup.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use aod_artifacts::CacheConfig;
use aod_docker::config::CapsuleUser;
use aod_docker::{Config, DockerRuntime};
use aod_domain::capsule::Resources;
use aod_domain::id::{NodeId, RunId};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::{Clock as _, SystemClock};
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime as _, ContainerSpec, IoPaths, Verdict,
};
use aod_ports::log_stream::Output;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tempfile::TempDir;
use uuid::Uuid;

/// The real engine.
pub(crate) const ENGINE: &str = "/var/run/docker.sock";

/// Maximum time of each wait in these tests: far above the need of a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A static busybox, for example from Debian's package `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

/// One test's cluster.
pub(crate) struct Fixture {
    pub(crate) runtime: DockerRuntime,
    pub(crate) cluster: String,
    pub(crate) artifacts: Arc<dyn ArtifactStore>,
    directory: TempDir,
    runs: AtomicU32,
}

/// A store in a new directory.
fn artifacts(directory: &Path) -> Arc<dyn ArtifactStore> {
    let url = format!("file://{}", directory.display());
    let cache = CacheConfig {
        directory: directory.join("cache"),
        bytes_max: 1,
    };
    aod_artifacts::open(&url, &cache).expect("a store")
}

/// Removes everything with the cluster's label, also when a test panics.
impl Drop for Fixture {
    fn drop(&mut self) {
        let filter = format!("label=dev.aod.cluster={}", self.cluster);
        let containers = docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
        for container in containers.lines() {
            docker(&["rm", "-fv", container]);
        }
        self.remove_images();
    }
}

/// End and output of a container.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) has_started: bool,
    pub(crate) last: Option<ContainerEvent>,
    pub(crate) verdict: Verdict,
}

impl Outcome {
    /// The exit code that the gate has reported.
    pub(crate) fn code(&self) -> Option<i32> {
        match &self.last {
            Some(ContainerEvent::Exited { exit, .. }) => exit.code,
            _ => None,
        }
    }

    /// The signal that the gate has reported.
    pub(crate) fn signal(&self) -> Option<i32> {
        match &self.last {
            Some(ContainerEvent::Exited { exit, .. }) => exit.signal,
            _ => None,
        }
    }
}

impl Fixture {
    /// Removes all images of the cluster.
    pub(crate) fn remove_images(&self) {
        let filter = format!("label=dev.aod.cluster={}", self.cluster);
        // The engine removes an image only after the images that are based on it.
        for _ in 0..3 {
            let images = docker(&["images", "-aq", "--no-trunc", "--filter", &filter]);
            for image in images.lines() {
                docker(&["rmi", "-f", image]);
            }
        }
    }

    pub(crate) async fn new() -> Self {
        Self::with(|config| config).await
    }

    /// A fixture with a changed configuration.
    pub(crate) async fn with(change: impl FnOnce(Config) -> Config) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("aod-docker-")
            .tempdir()
            .expect("a directory");
        let cluster = format!("test-{}", Uuid::now_v7().simple());
        let config = Config {
            // The same for each user that runs the tests, root or not.
            capsule_user: CapsuleUser::OfImage,
            ..Config::new(
                ENGINE.into(),
                cluster.clone(),
                NodeId::new(Uuid::now_v7()),
                gate_directory().to_owned(),
                directory.path().join("hosts"),
            )
        };
        let runtime = DockerRuntime::connect(change(config))
            .await
            .expect("the engine answers");
        Self {
            runtime,
            cluster,
            artifacts: artifacts(&directory.path().join("artifacts")),
            directory,
            runs: AtomicU32::new(0),
        }
    }

    /// An image with busybox, `/bin/sh`, a list of users, and these instructions.
    pub(crate) fn image(&self, instructions: &[&str]) -> String {
        self.image_of(&files(), instructions)
            .expect("docker imports the image")
    }

    /// An image of the files in `tar`, with these instructions; the message of Docker if it refuses them.
    pub(crate) fn image_of(&self, tar: &[u8], instructions: &[&str]) -> Result<String, String> {
        let label = format!("LABEL dev.aod.cluster={}", self.cluster);
        let mut import = Command::new("docker");
        import.args(["import", "-c", &label]);
        for instruction in instructions {
            import.args(["-c", instruction]);
        }
        let mut child = import
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the docker command is installed");
        // Docker may refuse an instruction before it reads the files.
        let _ = child.stdin.take().expect("piped").write_all(tar);
        let output = child.wait_with_output().expect("docker ends");
        let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// An image that runs `script` with its shell.
    pub(crate) fn script(&self, script: &str) -> String {
        self.image(&[&command(&["/bin/sh", "-c", script])])
    }

    /// The specification of `image` as the first attempt of a new run.
    pub(crate) fn spec(&self, image: &str) -> ContainerSpec {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let io = make_io(&self.directory.path().join(number.to_string()));
        ContainerSpec {
            run: RunId::root_of(Uuid::now_v7()),
            attempt: 1,
            capsule: "test".into(),
            image: image.into(),
            io,
            environment: vec![("AOD_ATTEMPT".into(), "1".into())],
            secrets: Vec::new(),
            devices: Vec::new(),
            resources: Resources {
                memory_bytes: 256 << 20,
                pids: 64,
                disk_bytes: 64 << 20,
                ..Resources::default()
            },
            holds: false,
            lease_until: lease(Duration::from_secs(60)),
        }
    }

    pub(crate) async fn start(&self, spec: ContainerSpec) -> Box<dyn Container> {
        self.runtime
            .start(spec)
            .await
            .expect("the container starts")
    }

    /// Runs `script` from its start to its end.
    pub(crate) async fn run_script(&self, script: &str) -> Outcome {
        let spec = self.spec(&self.script(script));
        finish(self.start(spec).await).await
    }

    /// A path for a test's own files.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Reads all events of a container and waits for its end.
pub(crate) async fn finish(mut container: Box<dyn Container>) -> Outcome {
    let mut events = container.events();
    let mut outcome = Outcome {
        stdout: String::new(),
        stderr: String::new(),
        has_started: false,
        last: None,
        verdict: Verdict::default(),
    };
    let reading = async {
        while let Some(event) = events.next().await {
            match event {
                ContainerEvent::Started => outcome.has_started = true,
                ContainerEvent::Wrote {
                    output: Output::Stdout,
                    bytes,
                } => {
                    outcome.stdout.push_str(&String::from_utf8_lossy(&bytes));
                }
                ContainerEvent::Wrote {
                    output: Output::Stderr,
                    bytes,
                } => {
                    outcome.stderr.push_str(&String::from_utf8_lossy(&bytes));
                }
                last => outcome.last = Some(last),
            }
        }
        container.gone().await.expect("the engine reports the end")
    };
    let verdict = tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the container ends in time");
    outcome.verdict = verdict;
    outcome
}

/// Reads events until `wanted` has been written to stdout.
pub(crate) async fn wait_for_output(
    container: &mut Box<dyn Container>,
    wanted: &str,
) -> BoxStream<'static, ContainerEvent> {
    let mut events = container.events();
    let reading = async {
        let mut seen = String::new();
        while !seen.contains(wanted) {
            match events.next().await {
                Some(ContainerEvent::Wrote { bytes, .. }) => {
                    seen.push_str(&String::from_utf8_lossy(&bytes));
                }
                Some(ContainerEvent::Started) => (),
                other => panic!("{other:?} after {seen:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the output comes in time");
    events
}

/// Waits until `condition` holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("timed out: {what}"));
}

/// The CMD instruction in exec form.
pub(crate) fn command(argv: &[&str]) -> String {
    let quoted: Vec<_> = argv
        .iter()
        .map(|argument| {
            format!(
                "\"{}\"",
                argument
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    .replace('\n', "\\n")
            )
        })
        .collect();
    format!("CMD [{}]", quoted.join(","))
}

/// The output of the docker command; ignores its failures.
pub(crate) fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker")
        .args(arguments)
        .output()
        .expect("docker is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The directories of an attempt, as a node makes them.
fn make_io(run: &Path) -> IoPaths {
    let directory = |name: &str, mode| {
        let path = run.join(name);
        fs::create_dir_all(&path).expect("a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        path
    };
    let io = IoPaths {
        io: directory("io", 0o1777),
        input_json: run.join("io/input.json"),
        inputs: directory("io/input", 0o755),
        outputs: directory("io/output", 0o777),
        handoff: directory("io/handoff", 0o755),
        outgoing: directory("io/handoff/outgoing", 0o777),
        incoming: directory("io/handoff/incoming", 0o755),
        workspace: directory("workspace", 0o777),
        channel: directory("channel", 0o755),
        volumes: directory("volumes", 0o755),
    };
    fs::write(&io.input_json, "{\"text\":\"hello\"}").expect("a file");
    fs::write(io.inputs.join("given.txt"), "given").expect("a file");
    io
}

/// The files of the test image as a tar.
pub(crate) fn files() -> Vec<u8> {
    let busybox = fs::read(BUSYBOX)
        .unwrap_or_else(|error| panic!("{BUSYBOX}: {error}; install busybox-static"));
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, mode, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        tar.append_data(&mut header, path, bytes)
            .expect("a tar in memory takes all");
    };
    add("bin/busybox", 0o755, &busybox);
    add(
        "etc/passwd",
        0o644,
        b"root:x:0:0::/:\napp:x:1234:1234::/:\ntoor:x:0:0::/:\n",
    );
    add("etc/group", 0o644, b"root:x:0:\napp:x:1234:\n");
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    tar.append_link(&mut header, "bin/sh", "busybox")
        .expect("a tar in memory takes all");
    tar.into_inner().expect("a tar in memory takes all")
}

/// A directory with the static gate; builds the gate if its sources are newer.
fn gate_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let target_directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static-gate");
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let directory = target_directory.join(&target).join("debug");
        let changed = fs::metadata(directory.join("aod-gate")).and_then(|file| file.modified());
        if changed.is_ok_and(|built| built > newest_file(&crates.join("gate"))) {
            return directory;
        }
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--offline",
                "--package",
                "aod-gate",
                "--bin",
                "aod-gate",
            ])
            .args(["--target", &target, "--target-dir"])
            .arg(&target_directory)
            .current_dir(crates)
            .env_remove("RUSTFLAGS")
            .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the gate could not be built");
        // Cargo does not write a program that a changed comment or a new date did not change.
        let file = fs::File::open(directory.join("aod-gate"));
        file.and_then(|file| file.set_modified(SystemTime::now()))
            .expect("the program is there");
        directory
    })
}

/// Time of the last change of any file below `directory`.
fn newest_file(directory: &Path) -> SystemTime {
    let entries = fs::read_dir(directory).expect("a directory of the sources");
    entries
        .map(|entry| {
            let entry = entry.expect("an entry of the sources");
            let metadata = entry.metadata().expect("a file of the sources");
            if metadata.is_dir() {
                newest_file(&entry.path())
            } else {
                metadata.modified().expect("a date of the sources")
            }
        })
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A lease that ends after `left` unless renewed.
pub(crate) fn lease(left: Duration) -> tokio::sync::watch::Receiver<Duration> {
    tokio::sync::watch::channel(SystemClock.since_boot() + left).1
}
