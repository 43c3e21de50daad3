//! A program on a host: the process that entered the host, and the program itself.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use super::commands::{children, eventually};

/// Maximum time until a program runs, whether it works or not.
const BEGIN_PATIENCE: Duration = Duration::from_secs(10);

/// A started program, to be ended by its owner.
#[derive(Debug)]
pub(crate) struct HostProcess {
    /// The process that entered the host and waits there for its child.
    entrance: Child,
    /// The program itself.
    id: u32,
}

impl HostProcess {
    /// Starts `command` of a host, which runs `program`; panics with `log` if it ends immediately.
    pub(crate) fn start(command: &mut Command, program: &Path, log: impl Fn() -> String) -> Self {
        // A link has another name than the program that is executed.
        let program = fs::canonicalize(program)
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut entrance = command.spawn().expect("nsenter is installed");
        let id = eventually("a program that runs", BEGIN_PATIENCE, || {
            let ended = entrance.try_wait().expect("a child of ours");
            assert!(
                ended.is_none(),
                "{} ended: {ended:?}: {}",
                program.display(),
                log()
            );
            children(entrance.id())
                .into_iter()
                .find(|child| runs(*child, &program))
        });
        Self { entrance, id }
    }

    /// The id of the program in the test's own PID namespace.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(mut self) {
        signal("KILL", self.id);
        // It may have been stopped together with its child.
        signal("CONT", self.entrance.id());
        let _ = self.entrance.wait();
    }

    /// SIGTERM; returns whether it ended within `patience`, and kills it otherwise.
    pub(crate) fn terminate(mut self, patience: Duration) -> bool {
        signal("TERM", self.id);
        let deadline = std::time::Instant::now() + patience;
        while std::time::Instant::now() < deadline {
            if self.ended().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill();
        false
    }

    /// SIGSTOP: connections stay open, requests get no answer.
    pub(crate) fn pause(&self) {
        signal("STOP", self.id);
    }

    /// SIGCONT after [`pause`](Self::pause).
    pub(crate) fn resume(&self) {
        signal("CONT", self.id);
        signal("CONT", self.entrance.id());
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.entrance.try_wait().expect("a child of ours")
    }
}

/// Whether the process executes the program; until then it is a copy of the process that entered the host.
fn runs(process: u32, program: &Path) -> bool {
    fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|path| path == program)
}

/// Sends a signal by its name without `SIG`; ignores ended processes.
fn signal(name: &str, process: u32) {
    let _ = Command::new("kill")
        .args(["-s", name, &process.to_string()])
        .output();
}
