//! What must be gone from hosts once all runs have ended and nodes have cleared away.

use std::time::{Duration, Instant};

use aod_tests::programs::{Program, ProgramCluster};

/// How long nodes may take: they compare their containers with the log every 30 s, and clearing away
/// takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// What there still is in the end, in words.
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

/// What there is of runs on the host of a node.
fn orphans(node: &Program) -> Vec<String> {
    let host = node.host();
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    // Names alone: where there is nothing to list, nothing is listed.
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
