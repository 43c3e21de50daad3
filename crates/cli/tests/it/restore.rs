//! A restored copy of a data directory beside its running original.

use std::path::Path;
use std::process::Command;

use crate::cluster::{Cluster, docker, wait_until};

/// Ends when the test creates the file `go` in the container.
const WAIT: &str = "until [ -e /workspace/go ]; do sleep 0.1; done; echo '{}' > /io/output.json";

/// Starts `cluster` with one slot and `options`.
fn start(cluster: &Cluster, options: &[&str]) -> crate::cluster::Ended {
    let common = ["up", "--detach", "--listen", "127.0.0.1:0", "--slots", "1"];
    cluster.run(&[&common, options].concat())
}

/// A copy of the data of the stopped `original`, as the guide makes a backup, with another port for the broker.
fn copy_of(original: &Cluster) -> Cluster {
    let copy = Cluster::new();
    let copied = Command::new("cp")
        .arg("-a")
        .args([original.data(), copy.data()])
        .status();
    assert!(copied.expect("cp starts").success());
    forget_port(&copy);
    copy
}

/// Removes the port of the original, which the running original uses.
fn forget_port(copy: &Cluster) {
    std::fs::remove_file(copy.data().join("nats/port")).expect("a port of the original");
}

fn node_id(cluster: &Cluster) -> String {
    let text = std::fs::read_to_string(cluster.data().join("node/node-id")).expect("a node id");
    text.lines().next().expect("a line").to_owned()
}

/// The running containers of the node of `cluster`.
fn containers(cluster: &Cluster) -> Vec<String> {
    let filter = format!("label=dev.aod.node={}", node_id(cluster));
    let ids = docker(&["ps", "--quiet", "--no-trunc", "--filter", &filter]);
    ids.lines().map(str::to_owned).collect()
}

/// Waits until the node of `cluster` runs a container other than `former`.
fn wait_for_container(cluster: &Cluster, former: &str) -> String {
    let mut found = Vec::new();
    wait_until("another container runs", || {
        found = containers(cluster);
        matches!(&found[..], [one] if one != former)
    });
    found.remove(0)
}

/// Lets the capsule in the container end.
fn release(container: &str) {
    // The capsule may not have started yet.
    wait_until("the file is created", || {
        let touch = ["exec", container, "/bin/busybox", "touch", "/workspace/go"];
        let touched = Command::new("docker").args(touch).output();
        touched.expect("the docker client").status.success()
    });
}

fn start_run(cluster: &Cluster) -> String {
    let started = cluster.run(&["run", "wait", "--detach"]).with(0);
    started.stdout.trim().to_owned()
}

fn has_succeeded(cluster: &Cluster, run: &str) -> bool {
    let shown = cluster.run(&["runs", "show", run]);
    shown.stdout.contains("succeeded")
}

fn original_path(original: &Cluster) -> String {
    let path = original.data().canonicalize().expect("a directory");
    path.to_string_lossy().into_owned()
}

fn id_file(data: &Path) -> String {
    std::fs::read_to_string(data.join("node/node-id")).expect("a node id")
}

#[test]
fn restored_copy_leaves_live_cluster_alone() {
    let live = Cluster::new();
    start(&live, &[]).with(0);
    live.build_capsule("wait", WAIT);
    let runs = [start_run(&live), start_run(&live)];
    wait_for_container(&live, "");
    live.run(&["down"]).with(0);
    let copy = copy_of(&live);
    start(&live, &[]).with(0);
    let first = wait_for_container(&live, "");

    // Without the option, the copy starts nothing and changes nothing.
    let before = id_file(&copy.data());
    let refused = start(&copy, &[]).with(2);
    let from = format!("was copied or moved from {}", original_path(&live));
    for expected in [from.as_str(), "hint:", "--restored"] {
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    assert_eq!(id_file(&copy.data()), before);
    assert_eq!(node_id(&copy), node_id(&live));

    // The restored copy runs the run that was queued in the backup, in its own container.
    let restored = start(&copy, &["--restored"]).with(0);
    assert!(restored.stderr.contains(&from), "{}", restored.stderr);
    assert_ne!(node_id(&copy), node_id(&live));
    let of_copy = wait_for_container(&copy, "");
    assert_eq!(containers(&live), [first.as_str()]);

    // The live cluster starts the same run beside it.
    release(&first);
    let second = wait_for_container(&live, &first);
    assert_eq!(containers(&copy), [of_copy.as_str()]);

    // The stop of the copy removes only the containers of the copy.
    copy.run(&["down"]).with(0);
    assert_eq!(containers(&copy), [""; 0]);
    assert_eq!(containers(&live), [second.as_str()]);
    release(&second);
    wait_until("both runs of the live cluster succeed", || {
        runs.iter().all(|run| has_succeeded(&live, run))
    });
}

#[test]
fn restored_copy_in_other_pool_starts_no_existing_run() {
    let original = Cluster::new();
    start(&original, &[]).with(0);
    original.build_capsule("wait", WAIT);
    let run = start_run(&original);
    original.run(&["down"]).with(0);
    let copy = copy_of(&original);
    start(&copy, &["--restored", "--pool", "drill"]).with(0);
    let again = start_run(&copy);
    wait_until("the gateway reports why the runs wait", || {
        let shown = copy.run(&["runs", "show", &again]).stdout;
        shown.contains("no node in pool any")
    });
    let shown = copy.run(&["runs", "show", &run]).with(0).stdout;
    assert!(!shown.contains("succeeded"), "{shown}");
    assert_eq!(containers(&copy), [""; 0]);
    // A test run in the pool of the drill.
    let started = copy.run(&["run", "wait", "--detach", "--pool", "drill"]);
    let started = started.with(0).stdout.trim().to_owned();
    release(&wait_for_container(&copy, ""));
    wait_until("the run succeeds", || has_succeeded(&copy, &started));
}

#[test]
fn running_cluster_is_backed_up_and_restored() {
    let live = Cluster::new();
    start(&live, &[]).with(0);
    live.build_capsule("echo", "cat /io/input.json > /io/output.json");
    let run = || {
        let started = live.run(&["run", "echo", "--detach"]).with(0);
        started.stdout.trim().to_owned()
    };
    let first = run();
    wait_until("the first run succeeds", || has_succeeded(&live, &first));
    // Runs start and end while the backup is made.
    let runs = std::thread::scope(|scope| {
        let runs = scope.spawn(|| (0..5).map(|_| run()).collect::<Vec<_>>());
        let target = live.path("backup");
        let target = target.to_string_lossy();
        let made = live.run(&["backup", &target]).with(0);
        assert!(made.stderr.contains("running"), "{}", made.stderr);
        let again = live.run(&["backup", &target]).with(2);
        assert!(again.stderr.contains(" exists"), "{}", again.stderr);
        runs.join().expect("the runs start")
    });
    wait_until("the live cluster ends all runs", || {
        runs.iter().all(|run| has_succeeded(&live, run))
    });
    let copy = Cluster::new();
    std::fs::rename(live.path("backup"), copy.data()).expect("the same file system");
    forget_port(&copy);
    start(&copy, &[]).with(2);
    start(&copy, &["--restored"]).with(0);
    wait_until("the first run is in the backup", || {
        has_succeeded(&copy, &first)
    });
    // The log of the copy accepts new events.
    copy.run(&["run", "echo"]).with(0);
}
