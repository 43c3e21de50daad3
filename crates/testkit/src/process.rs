//! A child process that never outlives its value.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum start time of a server: a start under load on two cores takes up to 2 s.
const READY_SECONDS_MAX: u64 = 30;

/// Interval between two checks of a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A started program; SIGKILL and wait on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    name: String,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { child, name }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Polls until `ready` returns a value; panics if the process ends first, or after 30 s.
    pub(crate) fn wait_until<T>(&mut self, what: &str, ready: impl FnMut() -> Option<T>) -> T {
        self.wait_for(READY_SECONDS_MAX, what, ready)
    }

    /// As [`wait_until`](Self::wait_until), with another time limit.
    pub(crate) fn wait_for<T>(
        &mut self,
        seconds_max: u64,
        what: &str,
        mut ready: impl FnMut() -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + Duration::from_secs(seconds_max);
        loop {
            if let Some(answer) = ready() {
                return answer;
            }
            if let Some(status) = self.child.try_wait().expect("a child process") {
                panic!("{} ended with {status} before {what}", self.name);
            }
            assert!(
                Instant::now() < deadline,
                "{}: no {what} in {seconds_max} s",
                self.name
            );
            sleep(LOOK_INTERVAL);
        }
    }

    /// Sends a signal by its name without `SIG`.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("sh")
            .args([
                "-c",
                "kill -s \"$0\" \"$1\"",
                signal,
                &self.id().to_string(),
            ])
            .status()
            .expect("a shell");
        assert!(status.success(), "kill -s {signal} of {} failed", self.name);
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
