//! A program that runs on a host: what entered the host for it, and the program itself.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use super::commands::{children, eventually};

/// How long a program may take to begin: that it works is another matter.
const BEGIN_PATIENCE: Duration = Duration::from_secs(10);

/// A started program. Whoever has it ends it.
#[derive(Debug)]
pub(crate) struct HostProcess {
    /// What entered the host and waits there for its child.
    entrance: Child,
    /// The program itself.
    id: u32,
}

impl HostProcess {
    /// Starts `command`, which is of a host and runs `program`; panics with what `log` says when it
    /// ends at once.
    pub(crate) fn start(command: &mut Command, program: &Path, log: impl Fn() -> String) -> Self {
        // What is executed has another name where the one that is known is a link.
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

    /// The id of the program, as the test's own processes see it.
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

    /// SIGTERM; answers whether it has ended within `patience`, and kills it if it has not.
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

    /// SIGSTOP: connections stay, nothing is answered.
    pub(crate) fn pause(&self) {
        signal("STOP", self.id);
    }

    /// SIGCONT after [`pause`](Self::pause).
    pub(crate) fn resume(&self) {
        signal("CONT", self.id);
        signal("CONT", self.entrance.id());
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.entrance.try_wait().expect("a child of ours")
    }
}

/// Whether the process has become what it was started for: until then it is a copy of what
/// entered the host.
fn runs(process: u32, program: &Path) -> bool {
    fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|path| path == program)
}

/// Sends a signal by its name without `SIG`; to whoever is gone already it does not matter.
fn signal(name: &str, process: u32) {
    let _ = Command::new("kill")
        .args(["-s", name, &process.to_string()])
        .output();
}
