//! A large file passes through a chain of capsules on two hosts with the minimum of transfers.

use std::time::Duration;

use aod_tests::hosts::Host;
use aod_tests::images::CapsuleDirectory;
use aod_tests::programs::{Person, ProgramCluster, Store};
use aod_tests::progress::say;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Capsules of the chain.
const CAPSULES: u64 = 10;

/// Size of each handed file.
const MEGABYTES: u64 = 40;

/// Maximum ratio of transferred to necessary bytes.
const MOVED_MAX: f64 = 1.1;

/// Maximum wait of a full node's callee for another node.
const ELSEWHERE_WITHIN: Duration = Duration::from_secs(2);

/// All bytes that the link of `host` has carried.
fn carried(host: &Host) -> u64 {
    let output = host.command("cat").arg("/proc/net/dev").output();
    let output = output.expect("every host has cat");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("eth0:"));
    let line = line.unwrap_or_else(|| panic!("no link in {text}"));
    let numbers: Vec<u64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    // Received and sent. Source: `proc(5)`.
    numbers[0] + numbers[8]
}

fn carried_by_all(cluster: &ProgramCluster) -> u64 {
    cluster.nodes.iter().map(|node| carried(node.host())).sum()
}

/// Starts the chain on the first host; it pauses `pause` seconds before its first call.
async fn start(person: &Person, pause: u64) -> String {
    let arguments = json!({"level": CAPSULES - 1, "megabytes": MEGABYTES, "pause": pause});
    let body = json!({"capsule": "relay", "arguments": arguments, "pool": "one"});
    person.start_as(&body).await
}

/// The runs of the chain, from the root on, with all their details.
async fn chain(person: &Person, root: &str) -> Vec<Value> {
    let tree = person.get(&format!("/v1/runs/{root}/tree")).await;
    let (mut runs, mut branch) = (Vec::new(), Some(&tree));
    while let Some(next) = branch {
        let id = next["run"]["id"].as_str().or(next["id"].as_str());
        let id = id.unwrap_or_else(|| panic!("no run in {next}"));
        runs.push(person.get(&format!("/v1/runs/{id}")).await);
        branch = next["children"].get(0);
    }
    assert_eq!(runs.len() as u64, CAPSULES, "{tree}");
    runs
}

fn fetched(run: &Value) -> u64 {
    let usage = &run["result"]["usage"];
    usage["fetched_bytes"]
        .as_u64()
        .unwrap_or_else(|| panic!("{run}"))
}

/// Prints the transferred bytes, and compares them with the necessary ones.
fn check_moved(what: &str, moved: u64, must: u64) {
    #[expect(clippy::cast_precision_loss, reason = "printed to a thousandth")]
    let ratio = moved as f64 / must as f64;
    say(&format!(
        "{what}: {moved} bytes transferred, {must} necessary: {ratio:.3} times"
    ));
    assert!(
        ratio <= MOVED_MAX,
        "{what}: {moved} bytes instead of {must}: {ratio:.3} times"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn file_in_a_chain_of_capsules_is_transferred_no_more_than_necessary() {
    let cluster = ProgramCluster::start(Store::S3, 1, &["any,one", "any,two"]).await;
    let person = cluster.person(0);
    person
        .register(&CapsuleDirectory::new("relay"), "any")
        .await;
    person
        .register(&CapsuleDirectory::new("worker"), "one")
        .await;
    // Both hosts have the image: only the file is measured.
    for pool in ["one", "two"] {
        let arguments = json!({"level": 0, "megabytes": 1});
        let body = json!({"capsule": "relay", "arguments": arguments, "pool": pool});
        let run = person.start_as(&body).await;
        assert_eq!(person.result(&run).await["success"], true);
    }
    // Each capsule creates a new file, which must be stored once.
    let file = MEGABYTES * 1_000_000;
    let must = (CAPSULES - 1) * file;

    let before = carried_by_all(&cluster);
    let root = start(&person, 0).await;
    assert_eq!(person.result(&root).await["success"], true);
    let moved = carried_by_all(&cluster) - before;
    let runs = chain(&person, &root).await;
    assert!(
        runs.iter().all(|run| run["node"] == runs[0]["node"]),
        "{runs:?}"
    );
    assert_eq!(runs.iter().map(fetched).sum::<u64>(), 0);
    check_moved("on one host", moved, must);

    // As soon as the root calls, another run takes its slot: its host is full while the chain runs.
    let root = start(&person, 5).await;
    let mut fillers = Vec::new();
    for _ in 0..4 {
        let arguments = json!({"table": "table.csv", "seconds": 120});
        let file = ("table.csv", b"1,2\n".to_vec());
        fillers.push(person.start("worker", arguments, file).await);
    }
    let before = carried_by_all(&cluster);
    assert_eq!(person.result(&root).await["success"], true);
    // The first callee's file must be transferred to the other host.
    check_moved(
        "with a full host",
        carried_by_all(&cluster) - before,
        must + file,
    );
    let runs = chain(&person, &root).await;
    assert_ne!(runs[1]["node"], runs[0]["node"]);
    assert!(
        runs[1..].iter().all(|run| run["node"] == runs[1]["node"]),
        "{runs:?}"
    );
    assert_eq!(fetched(&runs[1]), file);
    for run in &runs[1..] {
        let at = |value: &Value| -> Timestamp {
            value.as_str().expect("a time").parse().expect("a time")
        };
        let timings = &run["result"]["timings"];
        let waited = at(&timings["leased_at"]).duration_since(at(&timings["requested_at"]));
        assert!(
            waited.unsigned_abs() < ELSEWHERE_WITHIN,
            "{waited:?}: {run}"
        );
    }
    for filler in fillers {
        person.cancel(&filler).await;
    }
}
