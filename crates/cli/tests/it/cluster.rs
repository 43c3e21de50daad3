//! A data directory with an `aod up`; both are removed at the end, also after a failed test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Maximum waiting time in these tests: far above the need of a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A static busybox, for example from Debian's package `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

impl Ended {
    /// Asserts that the command ended with `code`.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "stdout: {}\nstderr: {}",
            self.stdout, self.stderr
        );
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// `aod` without environment variables of AOD.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aod"));
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AOD_"))
    {
        command.env_remove(name);
    }
    command
}

/// The candidates for the last of `words`, as `command` answers bash.
pub(crate) fn complete(command: &mut Command, words: &[&str]) -> String {
    let command = command
        .args(["--", "aod"])
        .args(words)
        .env("AOD_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let ended: Ended = command.output().expect("the program starts").into();
    ended.with(0).stdout
}

/// A data directory, at first without a running cluster.
pub(crate) struct Cluster {
    directory: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        // Short, because paths of sockets are limited.
        let directory = tempfile::Builder::new()
            .prefix("aod-cli-")
            .tempdir()
            .expect("a directory");
        Self { directory }
    }

    /// A data directory with a running cluster.
    pub(crate) fn up() -> Self {
        let cluster = Self::new();
        cluster.start().with(0);
        cluster
    }

    pub(crate) fn start(&self) -> Ended {
        self.run(&["up", "--detach", "--listen", "127.0.0.1:0", "--slots", "2"])
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.args(arguments).env("AOD_DATA", self.data());
        if let Some(server) = std::env::var_os("AOD_TEST_NATS_SERVER") {
            command.env("AOD_NATS_SERVER", server);
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.command(arguments)
            .output()
            .expect("the program starts")
            .into()
    }

    /// The process id of the running `aod up`.
    pub(crate) fn process_id(&self) -> u32 {
        let text = std::fs::read_to_string(self.data().join("connection.json")).expect("it runs");
        let connection: Value = serde_json::from_str(&text).expect("JSON");
        connection["pid"]
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .expect("a process id")
    }

    /// The processes with a path of this data directory in their command line.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = self.data().to_string_lossy().into_owned();
        let entries = std::fs::read_dir("/proc").expect("Linux");
        let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        ids.filter(|id| {
            let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains(&mark)
        })
        .collect()
    }

    /// The containers of this data directory.
    pub(crate) fn containers(&self) -> String {
        docker(&["ps", "--all", "--quiet", "--filter", &self.filter()])
    }

    fn filter(&self) -> String {
        let name = std::fs::read_to_string(self.data().join("cluster"));
        let name = name.unwrap_or_else(|_| "never-started".to_owned());
        format!("label=dev.aod.cluster={}", name.trim())
    }

    /// Writes and builds a capsule whose container runs `script`.
    pub(crate) fn build_capsule(&self, name: &str, script: &str) {
        let directory = self.path(name);
        write_capsule(&directory, script);
        self.run(&["capsule", "build", &directory.to_string_lossy()])
            .with(0);
    }
}

/// Writes a capsule that runs `script` with the static busybox of this machine, without a base image.
pub(crate) fn write_capsule(directory: &Path, script: &str) {
    std::fs::create_dir_all(directory).expect("a directory");
    std::fs::copy(BUSYBOX, directory.join("busybox")).unwrap_or_else(|error| {
        panic!("{BUSYBOX}: {error}; install a static busybox (busybox-static)")
    });
    let write = |name: &str, text: &str| {
        std::fs::write(directory.join(name), text).expect("a directory of ours");
    };
    write(
        "Dockerfile",
        "FROM scratch\nCOPY busybox script /bin/\nENTRYPOINT [\"/bin/busybox\", \"sh\", \"/bin/script\"]\n",
    );
    write(
        "script",
        &format!(
            "alias cat='busybox cat' cp='busybox cp' sleep='busybox sleep'\nexport PATH=/bin\n{script}\n"
        ),
    );
    write(
        "schema.json",
        r#"{"input": {"type": "object", "properties": {"file": {"type": "string", "format": "file_path"}, "number": {"type": "integer"}}}, "output": {"type": "object"}}"#,
    );
}

pub(crate) fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker")
        .args(arguments)
        .output()
        .expect("the docker client");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Polls until `condition` is true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.run(&["down"]);
        for id in self.processes() {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
        }
        for container in self.containers().lines() {
            docker(&["rm", "--force", "--volumes", container]);
        }
        for image in docker(&[
            "images",
            "--quiet",
            "--no-trunc",
            "--filter",
            &self.filter(),
        ])
        .lines()
        {
            docker(&["rmi", "--force", image]);
        }
    }
}
