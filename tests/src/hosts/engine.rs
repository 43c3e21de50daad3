//! The Docker daemon of a host: everything of its own, and no networks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::commands::eventually;
use super::host::{Host, docker_command};

/// How long a daemon may take until it answers: half a second on an idle machine.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Lines of the daemon's log that a failed test shows.
const LAST_LINES: usize = 30;

/// A running daemon with its containerd. Ends with its host.
#[derive(Debug)]
pub(super) struct Engine {
    daemon: Child,
    log: PathBuf,
}

impl Engine {
    pub(super) fn start(host: &Host) -> Self {
        let began = Instant::now();
        let directory = host.directory();
        // The machine's own configuration must not be read.
        let config = directory.join("dockerd.json");
        fs::write(&config, "{}").expect("a directory of ours");
        let log = directory.join("dockerd.log");
        let file = File::create(&log).expect("a directory of ours");
        let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let daemon = host
            .command("dockerd")
            .args([
                path("config-file", &config),
                path("data-root", &directory.join("docker")),
            ])
            .arg(format!("--host=unix://{}", host.docker_socket().display()))
            // `/run` is the host's own.
            .args(["--exec-root=/run/docker", "--pidfile=/run/docker.pid"])
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
            .stderr(file)
            .spawn()
            .expect("nsenter is installed");
        let mut engine = Self { daemon, log };
        let socket = host.docker_socket();
        eventually("a Docker daemon that answers", START_PATIENCE, || {
            let ended = engine.daemon.try_wait().expect("a child of ours");
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
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        if std::thread::panicking() {
            show_log("dockerd", &self.log);
        }
    }
}

/// Prints the end of a log; there may be none.
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
