//! Capsules from their directory to their result.

use std::time::Duration;

use serde_json::json;

use crate::cluster::{Cluster, wait_until};

/// Copies its input and its file.
const ECHO: &str = "echo to the logs; for file in /io/input/*; do [ -e \"$file\" ] && cp \"$file\" /io/output/; done; cp /io/input.json /io/output.json";

#[test]
fn a_capsule_is_built_and_run_and_its_files_come_back() {
    let cluster = Cluster::up();
    cluster.build_capsule("echo", ECHO);
    let unchanged = cluster
        .run(&[
            "capsule",
            "build",
            &cluster.path("echo").to_string_lossy(),
            "--output",
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
        .run(&["run", "echo", "--json", r#"{"a": [1]}"#, "--output", "json"])
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
            .eq(["succeeded", "result"])),
        "{events}"
    );
    assert_eq!(cluster.containers(), "");
}

#[test]
fn a_registered_capsule_is_seen_as_its_directory_is() {
    let cluster = Cluster::up();
    cluster.build_capsule("echo", ECHO);
    let known = cluster
        .run(&["capsule", "inspect", "echo", "--output", "json"])
        .with(0)
        .json();
    let directory = cluster.path("echo").to_string_lossy().into_owned();
    let found = cluster
        .run(&["capsule", "inspect", &directory, "--output", "json"])
        .with(0)
        .json();
    for member in ["content", "name", "resources", "schema"] {
        assert_eq!(known[member], found[member], "{member}");
    }
}

#[test]
fn every_way_to_end_has_its_code() {
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
    let unknown = cluster.run(&["run", "wrnog"]).with(2);
    assert!(unknown.stderr.contains("\"wrong\""), "{}", unknown.stderr);
    let refused = cluster.run(&["run", "slow", "--label", "No Label"]).with(2);
    assert!(refused.stderr.contains("/label"), "{}", refused.stderr);

    let id = cluster
        .run(&["run", "slow", "--detach"])
        .with(0)
        .stdout
        .trim()
        .to_owned();
    wait_until("it runs", || {
        cluster
            .run(&["runs", "show", &id])
            .stdout
            .contains("running")
    });
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
fn an_interrupted_command_cancels_its_run() {
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
                "--output",
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
fn what_runs_when_everything_stops_goes_on_at_the_next_start() {
    let cluster = Cluster::up();
    // It ends once it was started for the second time.
    cluster.build_capsule(
        "again",
        "[ \"$AOD_ATTEMPT\" = 1 ] && sleep 600; echo '{\"done\": true}' > /io/output.json",
    );
    let id = cluster
        .run(&["run", "again", "--detach"])
        .with(0)
        .stdout
        .trim()
        .to_owned();
    wait_until("it runs", || {
        cluster
            .run(&["runs", "show", &id])
            .stdout
            .contains("running")
    });
    cluster.run(&["down"]).with(0);
    assert_eq!(cluster.containers(), "");
    cluster.start().with(0);
    let started = std::time::Instant::now();
    wait_until("it ends", || {
        cluster
            .run(&["runs", "show", &id])
            .stdout
            .contains("succeeded")
    });
    assert!(
        started.elapsed() < Duration::from_secs(25),
        "the lease was waited for: {:?}",
        started.elapsed()
    );
}
