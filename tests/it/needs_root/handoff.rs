//! A handoff between hosts transfers every byte of small and large files.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;

use aod_domain::digest::{Digest, Hasher};
use aod_tests::hosts::eventually;
use aod_tests::programs::memory::{GateWatch, forget_peak, peak_bytes, resident_bytes};
use aod_tests::programs::{ProgramCluster, Store};
use serde_json::Value;

use super::chain::{self, FIRST_LINE};

/// Maximum memory growth of a program that moves a file of any size.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// A gibibyte.
const LARGE_FILE_BYTES: u64 = 1 << 30;

/// Maximum time for a gibibyte through two hosts and back.
const LARGE_FILE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(400);

async fn hands_files_over(store: Store) {
    let cluster = chain::cluster(store, 2, 1).await;
    let run = chain::start(&cluster.person(0), 0).await;
    let callee = chain::check(&cluster.person(1), &run).await;
    let caller = cluster.person(0).get(&format!("/v1/runs/{run}")).await;
    let hosts = [
        cluster.person(0).host_of(&caller["node"]).await,
        cluster.person(0).host_of(&callee["node"]).await,
    ];
    assert_eq!(
        hosts.map(|host| cluster.node_on(&host)),
        [0, 1],
        "each ran on its own host"
    );
    leaves_no_container(&cluster);
}

fn leaves_no_container(cluster: &ProgramCluster) {
    for node in &cluster.nodes {
        eventually(
            "the end of all containers",
            std::time::Duration::from_secs(60),
            || node.host().containers().is_empty().then_some(()),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_cross_hosts_through_the_broker() {
    hands_files_over(Store::JetStream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_cross_hosts_through_s3() {
    hands_files_over(Store::S3).await;
}

/// Writes an incompressible gibibyte; returns its digest, and that of the worker's output for it.
fn make_large_file(path: &Path) -> (Digest, Digest) {
    let mut random = File::open("/dev/urandom")
        .expect("random bytes")
        .take(LARGE_FILE_BYTES);
    let mut file = File::create(path).expect("a test directory");
    let (mut given, mut made) = (Hasher::new(), Hasher::new());
    made.update(FIRST_LINE);
    let mut piece = vec![0; 1 << 20];
    while random.limit() > 0 {
        random
            .read_exact(&mut piece)
            .expect("random bytes without end");
        given.update(&piece);
        made.update(&piece);
        file.write_all(&piece).expect("room on the disk");
    }
    (given.finish(), made.finish())
}

fn digest_of(path: &Path) -> Digest {
    let mut file = File::open(path).expect("a file that was brought");
    let mut hasher = Hasher::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).expect("a test file") {
            0 => return hasher.finish(),
            count => hasher.update(&piece[..count]),
        }
    }
}

/// Growth of the programs since their peaks were reset, in bytes.
fn growth(programs: &[(String, u32, u64)]) -> Vec<(String, u64)> {
    let grown = |(name, process, before): &(String, u32, u64)| {
        let peak = peak_bytes(*process).unwrap_or_else(|| panic!("{name} is gone"));
        (name.clone(), peak.saturating_sub(*before))
    };
    programs.iter().map(grown).collect()
}

/// Records the current sizes of the programs.
fn sizes(cluster: &ProgramCluster) -> Vec<(String, u32, u64)> {
    let gateways = cluster.gateways.iter().map(|program| ("gateway", program));
    let nodes = cluster.nodes.iter().map(|program| ("node", program));
    let size = |(name, program): (&str, &aod_tests::programs::Program)| {
        forget_peak(program.id());
        let resident = resident_bytes(program.id()).unwrap_or_else(|| panic!("{name} is gone"));
        (
            format!("{name} of {}", program.host().name()),
            program.id(),
            resident,
        )
    };
    gateways.chain(nodes).map(size).collect()
}

/// The output of `aod run`, and its peak memory in bytes.
fn run_with_aod(cluster: &ProgramCluster, file: &Path, output: &Path) -> (Value, u64) {
    let mut command = cluster.aod(0);
    command
        .args(["run", "caller", "--output"])
        .arg(output)
        .arg("--input")
        .arg(format!("table=@{}", file.display()));
    let mut child = command.stdout(Stdio::piped()).spawn().expect("aod starts");
    let mut peak = 0;
    let status = eventually("the end of aod run", LARGE_FILE_PATIENCE, || {
        peak = peak.max(peak_bytes(child.id()).unwrap_or(0));
        child.try_wait().expect("a child of ours")
    });
    let mut text = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut text)
        .expect("text");
    assert!(status.success(), "{status}: {text}");
    (
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}")),
        peak,
    )
}

/// Prints the times of a run and its callee.
async fn tell_times(cluster: &ProgramCluster, run: &Value) {
    let person = cluster.person(0);
    let tree = person
        .get(&format!(
            "/v1/runs/{}/tree",
            run["id"].as_str().expect("an id")
        ))
        .await;
    for run in [&tree, &tree["children"][0]] {
        let times = [
            "requested_at",
            "leased_at",
            "started_at",
            "exited_at",
            "ended_at",
        ];
        let times =
            times.map(|name| format!("{name} {}", run["timings"][name].as_str().unwrap_or("?")));
        eprintln!("  {}: {}", run["capsule"], times.join(", "));
    }
}

async fn carries_a_gibibyte(store: Store) {
    let cluster = chain::cluster(store, 1, 1).await;
    let directory = cluster.network.directory();
    let file = directory.join("table.bin");
    let (given, made) = make_large_file(&file);
    let before = sizes(&cluster);
    let gates = GateWatch::start(cluster.network.number());
    let began = std::time::Instant::now();
    let (result, aod) =
        tokio::task::block_in_place(|| run_with_aod(&cluster, &file, &directory.join("brought")));
    let seconds = began.elapsed().as_secs_f64();
    let mut grown = growth(&before);
    grown.push(("aod run".to_owned(), aod));
    grown.push((
        "the largest gate".to_owned(),
        gates.end().into_iter().max().expect("gates were seen"),
    ));
    eprintln!(
        "a gibibyte to the caller, the worker and back over {store:?} in {seconds:.1} s; growth:"
    );
    for (name, bytes) in &grown {
        eprintln!("  {name:24} {:5} KiB", bytes >> 10);
    }
    tell_times(&cluster, &result).await;
    let answer = &result["output"]["answer"];
    assert_eq!(answer["received_sha256"], given.to_string(), "{result}");
    assert_eq!(
        result["output"]["returned_sha256"],
        made.to_string(),
        "{result}"
    );
    assert_eq!(digest_of(&directory.join("brought/made.bin")), made);
    for (name, bytes) in grown {
        assert!(
            bytes < GROWTH_BYTES_MAX,
            "{name} has grown by {bytes} bytes"
        );
    }
    leaves_no_container(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn gibibyte_crosses_hosts_through_the_broker_in_bounded_memory() {
    carries_a_gibibyte(Store::JetStream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gibibyte_crosses_hosts_through_s3_in_bounded_memory() {
    carries_a_gibibyte(Store::S3).await;
}
