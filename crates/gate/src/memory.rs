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

/// The number of processes of this container that the kernel has killed because its memory ran out. The kernel
/// increments the counter before it kills the process, so the counter is correct when the gate reaps it.
///
/// Docker's report alone is not enough: Docker listens only after it has reported the start.
pub(crate) fn killed() -> u64 {
    if getpid() != Pid::INIT {
        // Outside a container (in tests) the counters belong to other processes.
        return 0;
    }
    let counters = COUNTERS.iter();
    let counters = counters.filter_map(|path| fs::read_to_string(path).ok());
    counters.map(|counters| count(&counters)).max().unwrap_or(0)
}

fn count(counters: &str) -> u64 {
    let mut counts = counters
        .lines()
        .filter_map(|line| line.strip_prefix(KILLED));
    let count = counts.next().and_then(|count| count.trim().parse().ok());
    count.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn killed_processes_are_counted_in_both_cgroup_versions() {
        let version_1 = |count| format!("oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n");
        let version_2 = |count| format!("low 0\nhigh 0\nmax 7\noom 1\noom_kill {count}\n");
        assert_eq!(count(&version_1(1)), 1);
        assert_eq!(count(&version_2(12)), 12);
        assert_eq!(count(&version_1(0)), 0);
        assert_eq!(count(&version_2(0)), 0);
        assert_eq!(count("oom_kill many\n"), 0);
        assert_eq!(count(""), 0);
    }
}
