//! Checks the kernel's memory counters of the container.

use std::fs;

use rustix::process::{Pid, getpid};

/// Paths of the container's own cgroup counters, versions 2 and 1.
const COUNTERS: [&str; 2] = [
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
];

/// The line that counts processes killed because the cgroup had no memory left.
/// Source: the kernel's `cgroup-v2.rst` and `cgroup-v1/memory.rst`.
const KILLED: &str = "oom_kill ";

/// Whether the kernel has killed a process of this container because its memory ran out. The kernel
/// increments the counter before it kills the process, so the counter is correct when the gate reaps it.
///
/// Docker's report alone is not enough: Docker listens only after it has reported the start.
pub(crate) fn has_run_out() -> bool {
    // Outside a container (in tests) the counters belong to other processes.
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
    fn killed_processes_are_counted_in_both_cgroup_versions() {
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
