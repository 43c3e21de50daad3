//! A Docker daemon of one test, with its data in a directory of the test: for faults of a disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aod_testkit::Scratch;

/// Maximum start time of a daemon: two seconds on an idle machine.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Tells a test that it runs in a network namespace of its own.
const ALONE: &str = "AOD_TEST_ALONE";

/// A test program in a network namespace of its own. A daemon without a bridge removes `docker0`, which is the bridge
/// of the daemon of this machine elsewhere.
pub(crate) struct Alone(());

impl Alone {
    /// Runs the test `name` of this program in a network namespace of its own; none after it has passed there.
    pub(crate) fn run(name: &str) -> Option<Self> {
        if std::env::var_os(ALONE).is_some() {
            return Some(Self(()));
        }
        let status = Command::new("unshare")
            .args(["--net", "--", "sh", "-c"])
            .args(["ip link set lo up && exec \"$@\"", "sh"])
            .arg(std::env::current_exe().expect("a program"))
            .args([name, "--exact", "--nocapture"])
            .env(ALONE, "1")
            .status();
        let status = status.expect("unshare(1)");
        assert!(status.success(), "{name} failed in its network namespace");
        None
    }
}

/// A running daemon without networks, on the loopback address of the test. Killed on drop.
pub(crate) struct Daemon {
    process: Child,
    directory: Scratch,
}

impl Daemon {
    /// Starts a daemon with its images in `data`.
    pub(crate) fn start(_: &Alone, data: &Path) -> Self {
        let directory = Scratch::new("dockerd");
        let path = |name: &str| directory.path().join(name);
        // Instead of the configuration of this machine.
        fs::write(path("config.json"), "{}").expect("a test directory");
        let log = File::create(path("log")).expect("a test directory");
        let option = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
        // A killed test leaves no daemon.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "dockerd"])
            .args([
                option("config-file", path("config.json")),
                option("data-root", data.to_owned()),
                option("exec-root", path("run")),
                option("pidfile", path("pid")),
                format!("--host=unix://{}", path("socket").display()),
            ])
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false"])
            .args(["--ip-forward=false", "--userland-proxy=false"])
            // The daemon may share a containerd with the daemon of this machine.
            .args(["--containerd-namespace=aod-test", "--log-level=error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let process = command.spawn().expect("setpriv and dockerd are installed");
        let mut daemon = Self { process, directory };
        let deadline = Instant::now() + START_PATIENCE;
        while !daemon.is_ready() {
            let ended = daemon.process.try_wait().expect("a child process");
            let log = || fs::read_to_string(daemon.directory.path().join("log"));
            assert!(ended.is_none(), "dockerd ended: {}", log().expect("a log"));
            assert!(Instant::now() < deadline, "dockerd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        daemon
    }

    fn is_ready(&self) -> bool {
        let mut command = self.command();
        let output = command.arg("version").output();
        output.expect("docker is installed").status.success()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        command.arg(format!("--host=unix://{}", self.socket().display()));
        command
    }

    /// The output of the docker command.
    pub(crate) fn docker(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output();
        let output = output.expect("docker is installed");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docker {arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
