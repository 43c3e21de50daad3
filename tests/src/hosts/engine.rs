//! The Docker daemon of a host, completely separate and without networks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::commands::{eventually, run};
use super::host::{Host, docker_command};
use super::process::HostProcess;

const DAEMON: &str = "dockerd";

/// The daemon's PID file, on its host.
const PID_FILE: &str = "/run/docker.pid";

/// Maximum start time of a daemon: half a second on an idle machine.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Lines of the daemon's log that a failed test prints.
const LAST_LINES: usize = 30;

/// A running daemon with its containerd. Ends with its host.
#[derive(Debug)]
pub(super) struct Engine {
    /// None after the drop.
    daemon: Option<HostProcess>,
    log: PathBuf,
}

impl Engine {
    pub(super) fn start(host: &Host) -> Self {
        let began = Instant::now();
        let directory = host.directory();
        // Prevents the use of the machine's own configuration.
        let config = directory.join("dockerd.json");
        fs::write(&config, "{}").expect("a test directory");
        let log = directory.join("dockerd.log");
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a test directory");
        // A killed daemon leaves the file, and its id may belong to another process by now.
        run(host.command("rm").args(["-f", PID_FILE]));
        let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut command = host.command(DAEMON);
        command
            .args([
                path("config-file", &config),
                path("data-root", &host.data_directory().join("docker")),
            ])
            .arg(format!("--host=unix://{}", host.docker_socket().display()))
            // `/run` is the host's own.
            .arg("--exec-root=/run/docker")
            .arg(format!("--pidfile={PID_FILE}"))
            .args([
                "--log-level=error",
                "--bridge=none",
                "--iptables=false",
                "--ip6tables=false",
                "--ip-forward=false",
            ])
            .args([
                "--userland-proxy=false",
                "--exec-opt=native.cgroupdriver=cgroupfs",
            ])
            .arg(format!("--cgroup-parent=/{}", host.name()))
            .stdout(Stdio::null())
            .stderr(file);
        let said = || fs::read_to_string(&log).unwrap_or_default();
        let daemon = HostProcess::start(&mut command, &found(DAEMON), said);
        let mut engine = Self {
            daemon: Some(daemon),
            log,
        };
        let socket = host.docker_socket();
        eventually("a Docker daemon that answers", START_PATIENCE, || {
            let ended = engine.daemon.as_mut().and_then(HostProcess::ended);
            assert!(
                ended.is_none(),
                "dockerd of {} ended: {ended:?}",
                host.name()
            );
            let answer = docker_command(&socket)
                .arg("version")
                .output()
                .expect("docker is installed");
            answer.status.success().then_some(())
        });
        eprintln!(
            "dockerd of {} answers after {:?}",
            host.name(),
            began.elapsed()
        );
        engine
    }

    /// SIGSTOP: the daemon does not answer.
    pub(super) fn pause(&self) {
        self.process().pause();
    }

    /// SIGCONT after [`pause`](Self::pause).
    pub(super) fn resume(&self) {
        self.process().resume();
    }

    fn process(&self) -> &HostProcess {
        self.daemon.as_ref().expect("it runs until it is dropped")
    }
}

/// The path of a program.
fn found(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|place| place.join(name));
    places
        .find(|place| place.is_file())
        .unwrap_or_else(|| panic!("{name} is installed"))
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.kill();
        }
        if std::thread::panicking() {
            show_log("dockerd", &self.log);
        }
    }
}

/// Prints the end of a log, if it exists.
pub(crate) fn show_log(what: &str, path: &Path) {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    eprintln!(
        "--- end of the log of {what}, {}\n{}\n---",
        path.display(),
        last.join("\n")
    );
}
