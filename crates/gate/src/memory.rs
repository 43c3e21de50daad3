//! What the kernel says of the container's memory.

use std::fs;

use rustix::process::{Pid, getpid};

/// Where a container finds the counters of its own cgroup, of version 2 and of version 1.
const COUNTERS: [&str; 2] = [
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
];

/// The line that counts processes killed because the cgroup had no memory left.
/// Source: the kernel's `cgroup-v2.rst` and `cgroup-v1/memory.rst`.
const KILLED: &str = "oom_kill ";

/// Whether the kernel has killed a process of this container because its memory ran out. The counter
/// is raised before the process is killed, so that whoever buries it sees it.
///
/// Docker's own word on this is not enough: it listens only from when it calls the container started.
pub(crate) fn has_run_out() -> bool {
    // Elsewhere than in a container, which is in tests, the counters are somebody else's.
    getpid() == Pid::INIT
        && COUNTERS
            .iter()
            .filter_map(|path| fs::read_to_string(path).ok())
            .any(|counters| counts_killed(&counters))
}

fn counts_killed(counters: &str) -> bool {
    counters
        .lines()
        .filter_map(|line| line.strip_prefix(KILLED))
        .any(|count| count.trim().parse::<u64>().is_ok_and(|count| count > 0))
}

#[cfg(test)]
mod tests {
    use super::counts_killed;

    #[test]
    fn killed_processes_are_counted_by_both_versions() {
        let version_1 = |count| format!("oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n");
        let version_2 = |count| format!("low 0\nhigh 0\nmax 7\noom 1\noom_kill {count}\n");
        assert!(counts_killed(&version_1(1)));
        assert!(counts_killed(&version_2(12)));
        assert!(!counts_killed(&version_1(0)));
        assert!(!counts_killed(&version_2(0)));
        assert!(!counts_killed("oom_kill many\n"));
        assert!(!counts_killed(""));
    }
}
