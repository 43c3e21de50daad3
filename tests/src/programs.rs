//! The real programs of a cluster as processes on hosts: started, killed, stopped and restarted, with their logs and
//! their memory.
//!
//! When a test fails, the logs of its dropped programs are printed.

pub mod memory;

mod broker;
mod cluster;
mod person;

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

pub use cluster::{Plan, ProgramCluster, Store};
pub use person::Person;

use crate::hosts::{Host, HostProcess, show_log};

/// The `aod` to test: from `AOD_TEST_AOD`, else the one built beside the tests, which is rebuilt now if it is older
/// than its sources.
pub fn aod() -> &'static Path {
    static AOD: OnceLock<PathBuf> = OnceLock::new();
    AOD.get_or_init(|| std::env::var_os("AOD_TEST_AOD").map_or_else(beside, PathBuf::from))
}

fn beside() -> PathBuf {
    let test = std::env::current_exe().expect("a program");
    // Tests are in `deps` beside it.
    let path = test
        .parent()
        .and_then(Path::parent)
        .expect("two directories up")
        .join("aod");
    let built = fs::metadata(&path).and_then(|file| file.modified());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let changed = ["crates", "capsules/sdk", "Cargo.toml", "Cargo.lock"]
        .map(|name| newest(&sources.join(name)));
    if !built.is_ok_and(|built| changed.iter().all(|&changed| changed < built)) {
        build();
    }
    assert!(
        path.is_file(),
        "{} was to be built; name another in AOD_TEST_AOD",
        path.display()
    );
    path
}

/// Runs the real `aod` against the gateway at `url`; it must exit with `code`.
///
/// # Panics
/// If the exit code differs.
pub async fn ask(url: &str, code: i32, arguments: &[&str]) -> Output {
    let mut process = Command::new(aod());
    process.args(arguments).env("AOD_URL", url);
    let asking = tokio::task::spawn_blocking(move || process.output().expect("aod starts"));
    let output = asking.await.expect("it does not panic");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    output
}

fn build() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--package", "aod-cli", "--bin", "aod"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo, or a program in AOD_TEST_AOD");
    assert!(status.success(), "aod could not be built");
}

/// The last change of `path`, or of the youngest file below it; long ago if it is missing.
fn newest(path: &Path) -> SystemTime {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let below = entries.map(|entry| newest(&entry.path())).max();
    let own = fs::metadata(path).and_then(|file| file.modified());
    below.or(own.ok()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A running program on a host.
#[derive(Debug)]
pub struct Program {
    executable: PathBuf,
    name: String,
    host: Host,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    running: Option<HostProcess>,
}

impl Program {
    /// Starts `program` with `arguments` on `host`; `name` is the name of its log.
    pub(crate) fn start(
        host: &Host,
        program: &Path,
        name: &str,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
    ) -> Self {
        let log = host.directory().join(format!("{name}.log"));
        let mut program = Self {
            executable: program.to_owned(),
            name: name.to_owned(),
            host: host.clone(),
            arguments,
            environment,
            log,
            running: None,
        };
        program.restart();
        program
    }

    /// Restarts it on the same data, after killing it if it still runs.
    pub fn restart(&mut self) {
        self.kill();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .expect("a test directory");
        let mut command = self.host.command(&self.executable);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .stderr(log);
        let running = HostProcess::start(&mut command, &self.executable, || self.log_text());
        self.running = Some(running);
    }

    /// The id of its process in the test's own PID namespace.
    pub fn id(&self) -> u32 {
        self.running().id()
    }

    /// Its kind: `gateway`, `node` or `nats`.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.kill();
        }
    }

    /// SIGTERM; returns whether it ended within `patience`. It has ended in any case.
    pub fn terminate(&mut self, patience: Duration) -> bool {
        self.running
            .take()
            .is_none_or(|running| running.terminate(patience))
    }

    /// SIGSTOP: connections stay open, requests get no answer.
    pub fn pause(&self) {
        self.running().pause();
    }

    /// SIGCONT after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.running().resume();
    }

    /// Its exit status, if it ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.running.as_mut().and_then(HostProcess::ended)
    }

    /// Panics with its log if it has ended by itself.
    pub(crate) fn check_runs(&mut self) {
        let ended = self.ended();
        assert!(
            ended.is_none(),
            "{} ended: {ended:?}: {}",
            self.name,
            self.log_text()
        );
    }

    /// Its log so far.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn running(&self) -> &HostProcess {
        match &self.running {
            Some(running) => running,
            None => panic!("{} was killed", self.name),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            show_log(&self.name, &self.log);
        }
    }
}
