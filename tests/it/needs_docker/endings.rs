//! Every unsuccessful end of a capsule, compared completely.

use std::collections::BTreeMap;

use aod_tests::cluster::LOG_BYTES_MAX;
use aod_tests::docker_cluster::{DockerCluster, RESOURCES};
use futures::future::join_all;
use serde_json::{Value, json};

use super::redaction::redacted;

/// How far a capsule may exceed its disk limit before it is ended: the writes of a disk between two checks, which are
/// 200 ms apart on an idle machine.
const OVERSHOOT_BYTES_MAX: u64 = 1 << 30;

/// Scripts that end by themselves or by a limit other than time.
const SCRIPTS: [(&str, &str); 26] = [
    ("answers", "echo '{\"pages\": 1}' | answer"),
    (
        "exits with 3",
        "echo begun; echo '{\"pages\": 1}' | answer; echo broken >&2; exit 3",
    ),
    ("is ended by a signal", "kill -SEGV $$"),
    (
        "writes half a JSON",
        "printf '{\"pages\": 1' >/io/output.json",
    ),
    ("writes a list", "echo '[1]' >/io/output.json"),
    (
        "writes no UTF-8",
        "printf '{\"name\": \"\\377\"}' >/io/output.json",
    ),
    ("writes nothing", "echo done"),
    ("writes an empty file", ": >/io/output.json"),
    (
        "writes 300 KiB of JSON",
        "printf '{\"notes\": %s}' \"$(many 300 \"$(letters 1021)\")\" | answer",
    ),
    (
        "writes base64",
        "printf '{\"picture\": \"%s\"}' \"$(letters 100000)\" | answer",
    ),
    (
        "writes the wrong types",
        "echo '{\"pages\": \"three\", \"report\": 7}' | answer",
    ),
    (
        "names a file that is not there",
        "echo '{\"report\": \"report.pdf\"}' | answer",
    ),
    (
        "names a file outside",
        "echo '{\"report\": \"../input/script.sh\"}' | answer",
    ),
    (
        "names an absolute file",
        "echo '{\"report\": \"/etc/passwd\"}' | answer",
    ),
    ("answers by a link", "ln -s /etc/hostname /io/output.json"),
    (
        "answers by a link to its input",
        "ln -s /io/input.json /io/output.json",
    ),
    (
        "answers by a hard link",
        "echo '{}' >/io/other && ln /io/other /io/output.json",
    ),
    ("answers by a FIFO", "mkfifo /io/output.json"),
    ("answers by a directory", "mkdir /io/output.json"),
    (
        "makes a link",
        "ln -s /etc/hostname /io/output/report.pdf; echo '{\"report\": \"report.pdf\"}' | answer",
    ),
    (
        "makes a FIFO beside a file",
        "mkfifo /io/output/fifo; echo x >/io/output/page.txt; echo '{}' | answer",
    ),
    (
        "makes a name with a line feed",
        "echo x >'/io/output/line\nfeed'; echo '{}' | answer",
    ),
    (
        "reports its own error",
        "echo '{\"error\": {\"code\": \"paper_jam\", \"message\": \"no paper\", \"detail\": {\"tray\": 2}, \"retryable\": true}}' | answer; exit 9",
    ),
    ("eats memory", "exec tail /dev/zero"),
    (
        "fills the disk",
        "n=0; while :; do n=$((n + 1)); head -c 8388608 /dev/zero >/workspace/$n; done",
    ),
    (
        "fills the disk with deleted files",
        "cd /workspace; while :; do head -c 8388608 /dev/zero >gone; sleep 600 <gone & rm gone; done",
    ),
];

/// Scripts that never end, with their time limit in seconds; those that first set a trap have time for it.
const ENDLESS: [(&str, &str, u32); 5] = [
    (
        "forks without end",
        "bomb() { bomb | bomb & bomb; }; bomb 2>/dev/null & exec sleep 600",
        2,
    ),
    ("prints for ever", "exec yes \"$(letters 1023)\"", 2),
    ("sleeps past its time", "exec sleep 600", 2),
    (
        "ignores SIGTERM",
        "trap '' TERM; while :; do sleep 0.1; done",
        5,
    ),
    (
        "leaves children behind",
        "trap '' TERM; setsid sleep 600 & wait",
        5,
    ),
];

async fn ended(cluster: &DockerCluster, script: &str, options: Value) -> Value {
    let run = cluster.start_script(script, options).await;
    cluster.client.result(&run).await
}

/// Cancels a capsule that ignores SIGTERM, after it has started.
async fn cancelled(cluster: &DockerCluster) -> Value {
    let script = "trap '' TERM; echo deaf; while :; do sleep 0.1; done";
    let run = cluster.start_script(script, json!({})).await;
    cluster.wait_for_line(&run, "deaf").await;
    cluster.cancel(&run).await;
    cluster.client.result(&run).await
}

/// Removes the written size, which differs each time, after a check of its maximum.
fn check_disk_quota(result: &mut Value) {
    let message = result["error"]["message"].as_str().unwrap_or_default();
    let written: u64 = message
        .strip_prefix("the capsule wrote ")
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no number of bytes in {result}"));
    let most = RESOURCES.disk_bytes + OVERSHOOT_BYTES_MAX;
    assert!((RESOURCES.disk_bytes..most).contains(&written), "{written}");
    result["error"]["message"] = message.replace(&written.to_string(), "…").into();
}

/// Endless output is stored up to a limit, and the last line states the missing part.
async fn check_logs(cluster: &DockerCluster, run: &str) {
    let (_, page) = cluster.client.get(&format!("/v1/runs/{run}/logs")).await;
    let items = page["items"].as_array().expect("lines");
    let lines: Vec<&str> = items
        .iter()
        .filter_map(|item| item["text"].as_str())
        .collect();
    let (last, others) = lines.split_last().expect("there are lines");
    assert!(
        last.starts_with("[aod: ") && last.ends_with(" more bytes of output were dropped]"),
        "{last}"
    );
    let line = "A".repeat(1_023);
    let other = others.iter().find(|other| **other != line);
    assert_eq!(other, None);
    assert_eq!(others.len() as u64, LOG_BYTES_MAX / 1_024);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_unsuccessful_end_has_its_own_error_code() {
    let cluster = DockerCluster::start(&["probe", "unstartable"]).await;
    let ending = SCRIPTS
        .iter()
        .map(|&(name, script)| (name, script, json!({})));
    let endless = ENDLESS
        .iter()
        .map(|&(name, script, seconds)| (name, script, json!({"timeout_seconds": seconds})));
    let scripts = ending.chain(endless);
    let running = scripts.map(|(name, script, options)| {
        let cluster = &cluster;
        async move { (name, ended(cluster, script, options).await) }
    });
    let (mut results, cancelled, unstartable) = tokio::join!(
        async {
            join_all(running)
                .await
                .into_iter()
                .collect::<BTreeMap<_, _>>()
        },
        cancelled(&cluster),
        async {
            let run = cluster.client.start("unstartable", json!({})).await;
            cluster.client.result(&run).await
        },
    );
    results.insert("ignores SIGTERM when it is cancelled", cancelled);
    results.insert("has no program", unstartable);
    let talker = results["prints for ever"]["id"]
        .as_str()
        .expect("a run has an id");
    check_logs(&cluster, talker).await;
    for filler in ["fills the disk", "fills the disk with deleted files"] {
        check_disk_quota(results.get_mut(filler).expect("it is one of them"));
    }
    let results: BTreeMap<_, _> = results
        .into_iter()
        .map(|(name, result)| (name, redacted(result)))
        .collect();
    insta::assert_json_snapshot!("endings", results);
}
