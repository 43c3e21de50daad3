//! Capsules that make random trees of files in every place where they may write, and end in a random way. Whatever they
//! do, it is their own failure or success: it costs one attempt, their good file is kept, and nothing is left behind.

use std::fmt::Write as _;
use std::fs;

use aod_tests::client::eventually;
use aod_tests::docker_cluster::DockerCluster;
use fastrand::Rng;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

/// Where a capsule may write.
const PLACES: [&str; 6] = [
    "/workspace",
    "/io",
    "/io/output",
    "/io/handoff/outgoing",
    "/tmp",
    "/dev/shm",
];

/// Names, as words of the shell.
const NAMES: [&str; 12] = [
    "a",
    "b.txt",
    "output.json",
    "input",
    "'with space'",
    "\"$(printf 'line\\nfeed')\"",
    "\"$(printf '\\377\\376')\"",
    "ünïcode",
    "./-rf",
    "...",
    "a/b/c",
    "\"$(head -c 255 /dev/zero | tr '\\0' x)\"",
];

/// What a capsule does to the path `$p`, beside the path `$q`. Failures do not matter.
const STEPS: [&str; 22] = [
    "mkdir -p \"$p\"",
    "mkdir -p \"$p/d/e/f\" && echo x >\"$p/d/e/f/g\"",
    "echo text >\"$p\"",
    "head -c 100000 /dev/zero >\"$p\"",
    "truncate -s 20000000 \"$p\"",
    "dd if=/dev/zero of=\"$p\" bs=1 count=1 seek=30000000",
    "ln -s /etc/passwd \"$p\"",
    "ln -s \"$q\" \"$p\"",
    "ln \"$q\" \"$p\"",
    "mkfifo \"$p\"",
    "chmod 0 \"$p\"",
    "chmod 4777 \"$p\"",
    "chmod -R a-rwx \"$q\"",
    "touch -d 1901-01-01 \"$p\"",
    "touch -d 2400-01-01 \"$p\"",
    "mv \"$q\" \"$p\"",
    "rm -rf \"$q\"",
    "(exec 8>\"$p\"; rm -f \"$p\"; head -c 100000 /dev/zero >&8; sleep 300) >/dev/null 2>&1 &",
    "(while :; do mv \"$p\" \"$q\"; mv \"$q\" \"$p\"; done) >/dev/null 2>&1 &",
    "mkdir -p \"$p\" && (cd \"$p\" && mkdir -p \"$(yes d | head -n 500 | tr '\\n' /)\")",
    "mkdir -p \"$p\" && (cd \"$p\" && for i in $(seq 200); do echo x >\"file-$i\"; done)",
    "cp /capsule/run.sh \"$p\"",
];

/// How a capsule ends.
const ENDS: [&str; 8] = [
    "echo '{\"pages\": 1}' | answer",
    "echo '{\"pages\": 0}' | answer",
    "echo '{\"error\": {\"code\": \"mine\", \"message\": \"so\"}}' | answer; exit 1",
    "printf '{\"pages\": ' >/io/output.json",
    "exit 3",
    "kill -9 $$",
    "kill -SEGV $$",
    "rm -rf /io/* 2>/dev/null; (sleep 300 &)",
];

/// The script of a seed. It writes `kept.txt` first, which no step touches.
fn script(seed: u64) -> String {
    let mut rng = Rng::with_seed(seed);
    let path = |rng: &mut Rng| {
        let (place, name) = (rng.choice(PLACES), rng.choice(NAMES));
        format!("{}/{}", place.expect("a place"), name.expect("a name"))
    };
    let mut script = "umask 0\necho kept >/io/output/kept.txt\n".to_owned();
    for _ in 0..rng.usize(1..25) {
        let (p, q) = (path(&mut rng), path(&mut rng));
        let step = rng.choice(STEPS).expect("a step");
        writeln!(script, "p={p}; q={q}\n{step} 2>/dev/null || true").expect("text takes all");
    }
    let end = rng.choice(ENDS).expect("an end");
    writeln!(script, "{end}").expect("text takes all");
    script
}

/// Runs the script of `seed`, and checks its end.
async fn run(cluster: &DockerCluster, seed: u64) {
    let script = script(seed);
    let options = json!({"timeout_seconds": 10});
    let run = cluster.start_script(&script, options).await;
    let result = cluster.client.result(&run).await;
    let context = || format!("seed {seed}: {result:#}\n{script}");
    assert_eq!(result["attempt"], 1, "{}", context());
    let source = &result["error"]["source"];
    // A step waits for ever at a FIFO without a reader.
    let is_own = ["succeeded", "timed_out"]
        .map(Value::from)
        .contains(&result["state"]);
    let is_own = is_own || *source == "capsule";
    assert!(is_own, "{}", context());
    let files = result["files"].as_array();
    let is_kept = files.is_some_and(|files| files.iter().any(|file| file["name"] == "kept.txt"));
    let has_removed_it = script.ends_with("(sleep 300 &)\n");
    assert!(is_kept || has_removed_it, "{}", context());
}

async fn run_all(seeds: u64) {
    let cluster = DockerCluster::start(&["probe"]).await;
    let runs = stream::iter(0..seeds).map(|seed| run(&cluster, seed));
    runs.buffer_unordered(4).for_each(|()| async {}).await;
    let data = cluster.cluster.data("node-0");
    eventually("no directory of an ended run", async || {
        let runs = fs::read_dir(data.join("runs")).expect("directories of runs");
        runs.count() == 0
    })
    .await;
    let leftovers = fs::read_dir(data.join("leftovers"));
    assert_eq!(
        leftovers.map_or(0, Iterator::count),
        0,
        "nothing is set aside"
    );
    eventually("no container of an ended run", async || {
        // The command of Docker prints a list only for containers.
        !cluster.inspect_containers().contains('{')
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_random_capsules_cost_one_attempt_each_and_leave_nothing() {
    run_all(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_random_capsules_cost_one_attempt_each_and_leave_nothing() {
    run_all(300).await;
}
