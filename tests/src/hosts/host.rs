//! One host: its namespaces, its link, and its commands.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::commands::ip;
use super::disk::Disk;
use super::engine::Engine;
use super::{MARK, Segment, address_of, directory_of, name_of};

/// The first process of a host: mounts a `/run`, sets the host name, and waits until its input ends, which is when the
/// test drops the host or dies. It stays a shell, which reaps orphans: daemons would otherwise appear to run.
const FIRST_PROCESS: &str = r#"mount -t tmpfs run /run && echo "$1" >/proc/sys/kernel/hostname && echo ready && cat >/dev/null; exit 0"#;

/// A host. Clones are the same host, which ends with the last one.
#[derive(Clone, Debug)]
pub struct Host {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    segment: Arc<Segment>,
    number: u8,
    /// The process that holds the namespaces; its child is the first process in them.
    holder: Child,
    engine: Mutex<Option<Engine>>,
    has_disk: OnceLock<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Kills the first process; the kernel then kills all others of the host.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        drop(
            self.engine
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}

impl Host {
    pub(super) fn start(segment: Arc<Segment>, number: u8) -> Self {
        let network = segment.claim.number();
        let switch = name_of(network);
        let name = format!("{switch}-{number}");
        ip(&format!("netns add {name}"));
        ip(&format!(
            "-n {switch} link add host{number} type veth peer name eth0 netns {name}"
        ));
        ip(&format!(
            "-n {switch} link set host{number} master bridge up"
        ));
        ip(&format!(
            "-n {name} addr add {}/24 dev eth0",
            address_of(network, number)
        ));
        ip(&format!("-n {name} link set eth0 up"));
        ip(&format!("-n {name} link set lo up"));
        let mut holder = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{name}"))
            .args([
                "unshare",
                "--mount",
                "--uts",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["sh", "-c", FIRST_PROCESS, "sh", &name])
            .env(MARK, network.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("nsenter is installed");
        let mut line = String::new();
        let output = holder.stdout.take().expect("piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("a line of text");
        assert_eq!(line, "ready\n", "the first process of {name}");
        let inner = Inner {
            segment,
            number,
            holder,
            engine: Mutex::new(None),
            has_disk: OnceLock::new(),
        };
        let host = Self {
            inner: Arc::new(inner),
        };
        std::fs::create_dir_all(host.directory()).expect("a test directory");
        host
    }

    /// The name of its network namespace and its host name.
    pub fn name(&self) -> String {
        format!("{}-{}", name_of(self.network()), self.inner.number)
    }

    pub fn address(&self) -> Ipv4Addr {
        address_of(self.network(), self.inner.number)
    }

    /// Its own directory, at the same path inside and out.
    pub fn directory(&self) -> PathBuf {
        directory_of(self.network()).join(self.inner.number.to_string())
    }

    /// Cuts its link: connections stay open, but no packet passes.
    pub fn cut(&self) {
        self.set_link("down");
    }

    /// Restores the link after [`cut`](Self::cut).
    pub fn join(&self) {
        self.set_link("up");
    }

    /// A command that runs on the host. Its processes are children of the command's process, and end with the host at
    /// the latest.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let namespaces = PathBuf::from(format!("/proc/{}/ns", self.inner.holder.id()));
        let option =
            |kind: &str, file: &str| format!("--{kind}={}", namespaces.join(file).display());
        let mut command = Command::new("nsenter");
        command
            .args([
                option("net", "net"),
                option("mount", "mnt"),
                option("uts", "uts"),
            ])
            .arg(option("pid", "pid_for_children"))
            .arg("--")
            .arg(program)
            .env(MARK, self.network().to_string())
            .stdin(Stdio::null());
        command
    }

    /// Mounts a separate disk of `size_bytes` for the data of its Docker daemon and its programs.
    pub fn mount_disk(&self, size_bytes: u64) {
        let is_first = self.inner.has_disk.set(()).is_ok();
        assert!(is_first, "{} has a disk already", self.name());
        Disk::of(self).mount(size_bytes);
    }

    /// Its separate disk, if any.
    pub fn disk(&self) -> Option<Disk<'_>> {
        self.inner.has_disk.get().map(|()| Disk::of(self))
    }

    /// The data directory of its Docker daemon and its programs, at the same path inside and outside; on a separate
    /// disk, the content is only visible inside.
    pub fn data_directory(&self) -> PathBuf {
        self.disk()
            .map_or_else(|| self.directory(), Disk::directory)
    }

    /// Starts its Docker daemon and waits until it answers; prints the time.
    pub fn start_engine(&self) {
        let mut engine = self.engine();
        assert!(
            engine.is_none(),
            "{} has a Docker daemon already",
            self.name()
        );
        *engine = Some(Engine::start(self));
    }

    /// Kills its Docker daemon and containerd; containers continue.
    pub fn kill_engine(&self) {
        drop(self.engine().take());
    }

    /// SIGSTOP to its Docker daemon, which then does not answer.
    pub fn pause_engine(&self) {
        self.engine().as_ref().expect("it has one").pause();
    }

    /// SIGCONT after [`pause_engine`](Self::pause_engine).
    pub fn resume_engine(&self) {
        self.engine().as_ref().expect("it has one").resume();
    }

    /// The socket of its Docker daemon, inside and outside.
    pub fn docker_socket(&self) -> PathBuf {
        self.directory().join("docker.sock")
    }

    /// The output of the docker command for this host's daemon; a failure ends the test.
    pub fn docker<S: AsRef<OsStr>>(&self, arguments: &[S]) -> String {
        super::commands::run(docker_command(&self.docker_socket()).args(arguments))
    }

    /// The ids of its containers, including stopped ones.
    pub fn containers(&self) -> Vec<String> {
        self.docker(&["ps", "--all", "--quiet"])
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn engine(&self) -> std::sync::MutexGuard<'_, Option<Engine>> {
        self.inner
            .engine
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn network(&self) -> u8 {
        self.inner.segment.claim.number()
    }

    fn set_link(&self, state: &str) {
        ip(&format!(
            "-n {} link set host{} {state}",
            name_of(self.network()),
            self.inner.number
        ));
    }
}

/// The docker command for the daemon at `socket`.
pub(super) fn docker_command(socket: &Path) -> Command {
    let mut command = Command::new("docker");
    command
        .env_remove("DOCKER_CONTEXT")
        .env("DOCKER_HOST", format!("unix://{}", socket.display()));
    command
}
