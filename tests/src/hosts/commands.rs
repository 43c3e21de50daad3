//! Commands of the machine, and waits for their effects.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval between two checks of a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `ip` with these words.
pub(super) fn ip(words: &str) {
    let mut command = Command::new("ip");
    run(command.args(words.split(' ')));
}

/// Runs a command to its end; returns its output. A failure ends the test.
pub(super) fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}: {errors}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Polls `condition` until it returns a value; panics after `patience`.
pub fn eventually<T>(
    what: &str,
    patience: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = condition() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within {patience:?}");
        sleep(LOOK_INTERVAL);
    }
}

/// All processes of this machine.
pub(crate) fn all_processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("a Linux machine");
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The living children of `parent`.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let is_child = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        line.is_some_and(|text| text.trim() == parent.to_string())
    };
    all_processes().into_iter().filter(is_child).collect()
}
