//! Leftovers on hosts after all runs have ended and nodes have cleaned up.

use std::time::{Duration, Instant};

use aod_tests::programs::{Program, ProgramCluster};

/// Maximum time for the cleanup: nodes compare their containers with the log every 30 s, and the cleanup takes a
/// moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Interval between two checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The final leftovers, as text.
pub(crate) fn look(cluster: &ProgramCluster) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: Vec<String> = cluster.nodes.iter().flat_map(orphans).collect();
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The leftovers of runs on the host of a node.
fn orphans(node: &Program) -> Vec<String> {
    let host = node.host();
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    // Names only; a missing directory has none.
    let list = |directory: &str| {
        let mut command = host.command("sh");
        command.args(["-c", "ls -A \"$1\" 2>/dev/null; exit 0", "sh", directory]);
        let output = command.output().expect("nsenter is installed").stdout;
        lines(String::from_utf8_lossy(&output).into_owned())
    };
    let runs = host.data_directory().join("aod/runs");
    let found = [
        ("container", host.containers()),
        ("volume", lines(host.docker(&["volume", "ls", "--quiet"]))),
        ("network namespace", list("/run/docker/netns")),
        ("directory of a run", list(&runs.display().to_string())),
    ];
    let name = host.name();
    let told = |(what, names): (&str, Vec<String>)| {
        let name = name.clone();
        let tell = move |id| format!("{what} {id} on {name}");
        names.into_iter().map(tell).collect::<Vec<_>>()
    };
    found.into_iter().flat_map(told).collect()
}
