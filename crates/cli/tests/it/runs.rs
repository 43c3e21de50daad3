//! Capsules from their directory to their result, in a cluster of `aod up`.

use std::io::{BufRead as _, BufReader};

use serde_json::json;

use crate::cluster::{Cluster, complete, wait_until};

/// Copies its input and its file.
const ECHO: &str = "echo to the logs; for file in /io/input/*; do [ -e \"$file\" ] && cp \"$file\" /io/output/; done; cp /io/input.json /io/output.json";

#[test]
fn built_capsule_runs_and_returns_its_files() {
    let cluster = Cluster::up();
    cluster.build_capsule("echo", ECHO);
    let unchanged = cluster
        .run(&[
            "capsule",
            "build",
            &cluster.path("echo").to_string_lossy(),
            "--format",
            "json",
        ])
        .with(0);
    assert_eq!(unchanged.json()["is_unchanged"], true);
    let file = cluster.path("data one.txt");
    std::fs::write(&file, "content").expect("a directory of ours");
    let given = format!("file=@{}", file.display());
    let directory = cluster.path("made");
    let ran = cluster
        .run(&[
            "run",
            "echo",
            "-i",
            &given,
            "-i",
            "number=7",
            "-o",
            &directory.to_string_lossy(),
        ])
        .with(0);
    assert_eq!(ran.json(), json!({"file": "data one.txt", "number": 7}));
    assert_eq!(
        std::fs::read_to_string(directory.join("data one.txt")).expect("it was made"),
        "content"
    );
    let names: Vec<_> = std::fs::read_dir(&directory)
        .expect("it was made")
        .collect();
    assert_eq!(names.len(), 1, "nothing but the file is left: {names:?}");

    let result = cluster
        .run(&["run", "echo", "--json", r#"{"a": [1]}"#, "--format", "json"])
        .with(0)
        .json();
    assert_eq!(
        (&result["state"], &result["output"]),
        (&json!("succeeded"), &json!({"a": [1]}))
    );
    let id = result["id"].as_str().expect("an id");
    assert_eq!(
        cluster.run(&["runs", "logs", id]).with(0).stdout,
        "to the logs\n"
    );
    let tree = cluster.run(&["runs", "tree", id]).with(0).stdout;
    assert!(
        tree.lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("echo") && line.ends_with(id)),
        "{tree}"
    );
    let events = cluster
        .run(&["runs", "events", "--follow", id])
        .with(0)
        .stdout;
    assert!(
        events.lines().last().is_some_and(|line| line
            .split_whitespace()
            .rev()
            .take(2)
            .eq(["succeeded", "ended"])),
        "{events}"
    );
    wait_until("no container is left", || cluster.containers().is_empty());
}

#[test]
fn ended_run_is_found_by_prefix_and_as_the_last_one() {
    let cluster = Cluster::up();
    cluster.build_capsule("echo", ECHO);
    let file = cluster.path("data one.txt");
    std::fs::write(&file, "content").expect("a directory of ours");
    let given = format!("file=@{}", file.display());
    let started = cluster.run(&["run", "echo", "-i", &given, "--detach"]);
    let id = started.with(0).stdout.trim().to_owned();
    let prefix = &id[..id.len() - 1];
    let output = cluster.run(&["runs", "wait", "@last"]).with(0).json();
    assert_eq!(output, json!({"file": "data one.txt"}));

    let listed = cluster.run(&["runs", "files", prefix, "--list"]).with(0);
    assert_eq!(listed.stdout, "FILE          SIZE\ndata one.txt  7 B\n");
    let made = cluster.path("made").to_string_lossy().into_owned();
    cluster.run(&["runs", "files", prefix, "-o", &made]).with(0);
    assert!(cluster.path("made").join("data one.txt").is_file());

    let whole = cluster.run(&["runs", "logs", "--tree", prefix]).with(0);
    let expected = format!("echo {}  to the logs\n", &id[id.len() - 6..]);
    assert_eq!(whole.stdout, expected);
    let followed = cluster.run(&["runs", "logs", "--tree", "-f", &id]).with(0);
    assert_eq!(followed.stdout, expected);

    let completed = complete(&mut cluster.command(&[]), &["run", "ec"]);
    assert_eq!(completed, "echo");
    let completed = complete(&mut cluster.command(&[]), &["runs", "show", prefix]);
    assert_eq!(completed, id);

    cluster.run(&["capsule", "rm", "echo"]).with(0);
    cluster.run(&["run", "echo"]).with(2);
}

#[test]
fn inspect_shows_the_same_for_capsule_and_directory() {
    let cluster = Cluster::up();
    cluster.build_capsule("echo", ECHO);
    let known = cluster
        .run(&["capsule", "inspect", "echo", "--format", "json"])
        .with(0)
        .json();
    let directory = cluster.path("echo").to_string_lossy().into_owned();
    let found = cluster
        .run(&["capsule", "inspect", &directory, "--format", "json"])
        .with(0)
        .json();
    for member in ["content", "name", "resources", "schema"] {
        assert_eq!(known[member], found[member], "{member}");
    }
}

#[test]
fn each_outcome_has_its_exit_code() {
    let cluster = Cluster::up();
    cluster.build_capsule("wrong", "echo went wrong >&2; exit 3");
    cluster.build_capsule("slow", "sleep 600");
    let failed = cluster.run(&["run", "wrong"]).with(1);
    assert!(
        failed.stdout.is_empty() && failed.stderr.contains("(capsule_exit)"),
        "{}",
        failed.stderr
    );
    assert!(failed.stderr.contains("went wrong"), "{}", failed.stderr);
    let timed_out = cluster.run(&["run", "slow", "--timeout", "1"]).with(4);
    assert!(
        timed_out.stderr.contains("(timed_out)"),
        "{}",
        timed_out.stderr
    );
    cluster.run(&["runs", "wait", "@last"]).with(4);
    let with_key = ["run", "wrong", "--idempotency-key", "monday", "--detach"];
    let [first, second] = [(); 2].map(|()| cluster.run(&with_key).with(0).stdout);
    assert_eq!(first, second, "the second command joins the run");
    let unknown = cluster.run(&["run", "wrnog"]).with(2);
    assert!(unknown.stderr.contains("\"wrong\""), "{}", unknown.stderr);
    let refused = cluster.run(&["run", "slow", "--pool", "No Pool"]).with(2);
    assert!(refused.stderr.contains("/pool"), "{}", refused.stderr);

    let id = running(&cluster, "slow");
    cluster
        .run(&["runs", "cancel", &id, "--reason", "enough"])
        .with(0);
    cluster.run(&["runs", "events", "--follow", &id]).with(0);
    assert!(
        cluster
            .run(&["runs", "show", &id])
            .with(0)
            .stdout
            .contains("by operator: enough")
    );
}

#[test]
fn interrupted_command_cancels_its_run() {
    let cluster = Cluster::up();
    cluster.build_capsule("slow", "sleep 600");
    let mut command = cluster.command(&["run", "slow"]);
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let running = || {
        cluster
            .run(&[
                "runs",
                "ls",
                "--capsule",
                "slow",
                "--state",
                "running",
                "--format",
                "json",
            ])
            .json()
    };
    wait_until("it runs", || {
        running()["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
    });
    let id = child.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-INT", &id])
            .status()
            .expect("kill")
            .success()
    );
    let ended: crate::cluster::Ended = child.wait_with_output().expect("a child of ours").into();
    let ended = ended.with(5);
    assert!(ended.stderr.contains("was cancelled"), "{}", ended.stderr);
}

#[test]
fn command_reports_why_its_run_waits() {
    let cluster = Cluster::up();
    cluster.build_capsule("echo", ECHO);
    let mut command = cluster.command(&["run", "echo", "--pool", "gpu"]);
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let mut lines = lines.map(|line| line.expect("UTF-8"));
    let reason = "waits: no node in pool gpu";
    assert!(lines.any(|line| line.ends_with(reason)), "no {reason:?}");
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
}

#[test]
fn unfinished_run_continues_after_down_and_up() {
    let cluster = Cluster::up();
    // The second attempt ends.
    cluster.build_capsule(
        "again",
        "[ \"$AOD_ATTEMPT\" = 1 ] && sleep 600; echo '{\"done\": true}' > /io/output.json",
    );
    let id = running(&cluster, "again");
    cluster.run(&["down"]).with(0);
    assert_eq!(cluster.containers(), "");
    cluster.start().with(0);
    wait_until("it ends", || {
        cluster
            .run(&["runs", "show", &id])
            .stdout
            .contains("succeeded")
    });
    // The restarted node recorded the lost attempt without waiting for the end of the lease.
    let shown = cluster.run(&["events", "query", "--run", &id]).with(0);
    assert!(shown.stdout.contains("attempt_lost"), "{}", shown.stdout);
}

/// Starts a run of `capsule`, and returns its id when it runs.
fn running(cluster: &Cluster, capsule: &str) -> String {
    let started = cluster.run(&["run", capsule, "--detach"]).with(0);
    let id = started.stdout.trim().to_owned();
    wait_until("it runs", || {
        let shown = cluster.run(&["runs", "show", &id]);
        shown.stdout.contains("running")
    });
    id
}
