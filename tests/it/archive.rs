//! Old events leave the broker, and readers see no difference: a real broker, an S3 store, capsules as functions.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aod_artifacts::CacheConfig;
use aod_domain::admission::Capacity;
use aod_domain::subject;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::{Clock, SystemClock};
use aod_ports::event_log::EventLog as _;
use aod_testkit::S3Server;
use aod_tests::client::{Client, eventually};
use aod_tests::cluster::{Cluster, any_schema};
use aod_tests::programs::ask;
use aod_tests::simulated::{Command, Inside, handoff, runtime};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// How long the broker keeps events in these tests; later they are old.
const AGE: SignedDuration = SignedDuration::from_hours(30 * 24);
const MONTH: SignedDuration = SignedDuration::from_hours(31 * 24);

/// An event stored within this time before the first remaining one may or may not be released.
const APART: Duration = Duration::from_secs(65);

/// Maximum time until the release: one minute passes between announcement and release, and events younger than two
/// minutes stay.
const RELEASE_PATIENCE: Duration = Duration::from_secs(240);

/// The clock of a host a month later.
#[derive(Debug)]
struct Later;

impl Clock for Later {
    fn now(&self) -> Timestamp {
        SystemClock.now() + MONTH
    }

    fn since_boot(&self) -> Duration {
        SystemClock.since_boot()
    }

    fn fresh_uuid(&self) -> Uuid {
        SystemClock.fresh_uuid()
    }

    fn fresh_secret(&self) -> [u8; 32] {
        SystemClock.fresh_secret()
    }
}

/// Creates a long text from its number, as an artifact; counts its starts.
fn leaf(starts: &Arc<AtomicU32>) -> Command {
    let starts = Arc::clone(starts);
    Arc::new(move |inside: Inside| {
        starts.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let number = inside.input()["number"].as_u64().expect("a number");
            inside.write_output(&json!({"text": number.to_string().repeat(20_000)}));
            0
        })
    })
}

/// Passes its number on, and returns the answer.
fn top() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let body = json!({"target": "leaf", "args": inside.input()});
            let (status, answer) = handoff(&inside, &body).await;
            assert_eq!(status, 200, "{answer}");
            inside.write_output(&answer["output"]);
            0
        })
    })
}

async fn add_host(cluster: &mut Cluster, starts: &Arc<AtomicU32>) {
    let capacity = Capacity {
        slots: 2,
        containers_max: 8,
        memory_bytes: 4 << 30,
    };
    let capsules = [("top".to_owned(), top()), ("leaf".to_owned(), leaf(starts))];
    cluster
        .add_node(&["any"], capacity, runtime(capsules))
        .await;
}

/// All answers of commands about a run, as text.
async fn all_about(cluster: &Cluster, run: &str) -> Vec<String> {
    let url = cluster.gateways[0].url();
    let mut told = Vec::new();
    for arguments in [
        &["runs", "show", run, "--format", "json"][..],
        &["runs", "tree", run, "--format", "json"],
        &["runs", "events", run, "--format", "json"],
        &["runs", "at", run, "--event", "4", "--format", "json"],
        &["events", "query", "--tree", run, "--format", "json"],
        &[
            "events",
            "query",
            "--type",
            "registered",
            "--format",
            "json",
        ],
    ] {
        let output = ask(url, 0, arguments).await;
        told.push(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // The lists lag behind by design.
    let client = cluster.client(0);
    eventually("the list", async || listed(&client).await.len() >= 2).await;
    told.extend(listed(&client).await);
    let bundle = client.bytes(&format!("/v1/runs/{run}/bundle")).await;
    told.push(format!("{bundle:?}"));
    let replayed = ask(url, 0, &["runs", "replay", run]).await;
    let replayed = String::from_utf8_lossy(&replayed.stdout).into_owned();
    // Earlier lines state the position of the lists.
    told.extend(replayed.lines().last().map(str::to_owned));
    told
}

async fn listed(client: &Client) -> Vec<String> {
    let (status, page) = client.get("/v1/runs?text=7&state=succeeded").await;
    assert_eq!(status, 200, "{page}");
    let items = page["items"].as_array().expect("runs");
    items.iter().map(Value::to_string).collect()
}

/// Waits until the broker has no event of the tree of `run`.
async fn wait_until_released(cluster: &Cluster, run: &str) {
    let log = cluster.broker("watcher").await.event_log();
    let tree = subject::tree(run.parse().expect("the id of a run"));
    let deadline = Instant::now() + RELEASE_PATIENCE;
    while !log.read(&tree, 0, 1).await.expect("the broker").is_empty() {
        assert!(Instant::now() < deadline, "the broker keeps {run}");
        sleep(Duration::from_millis(500)).await;
    }
}

fn store(cluster: &Cluster, server: &S3Server) -> Arc<dyn ArtifactStore> {
    let credentials = cluster.data("store").join("credentials");
    let keys = format!(
        "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY
    );
    std::fs::write(&credentials, keys).expect("a test file");
    std::fs::set_permissions(&credentials, Permissions::from_mode(0o600)).expect("a test file");
    let url = format!(
        "s3://{}?endpoint={}&region=us-east-1&credentials={}",
        S3Server::BUCKET,
        server.endpoint(),
        credentials.display()
    );
    let cache = CacheConfig {
        directory: cluster.data("cache"),
        bytes_max: 1 << 30,
    };
    aod_artifacts::open(&url, &cache).expect("a store")
}

async fn rerun(cluster: &Cluster, run: &str, more: &[&str]) -> Value {
    let arguments = [&["runs", "rerun", run, "--detach"], more].concat();
    let output = ask(cluster.gateways[0].url(), 0, &arguments).await;
    let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let result = cluster.client(0).result(&id).await;
    assert_eq!(result["state"], "succeeded", "{result}");
    result
}

/// The work of a tree, callers first: images, schemas and arguments.
async fn work(client: &Client, root: &str) -> Vec<Value> {
    let (status, page) = client.get(&format!("/v1/events?tree={root}")).await;
    assert_eq!(status, 200, "{page}");
    let events = page["items"].as_array().expect("events");
    let launches = events.iter().map(|event| &event["data"]);
    launches
        .filter(|data| !data["work"].is_null())
        .map(|data| json!({"work": data["work"], "payload": data["payload"]}))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn archived_run_is_shown_joined_and_rerun_a_month_later_on_another_host() {
    let server = S3Server::start();
    let starts = Arc::new(AtomicU32::new(0));
    let mut cluster = Cluster::start(0).await;
    cluster.artifacts = store(&cluster, &server);
    cluster.add_gateway().await;
    add_host(&mut cluster, &starts).await;
    for name in ["top", "leaf"] {
        cluster.register(name, &any_schema()).await;
    }
    let client = cluster.client(0);
    let asked = json!({"number": 7});
    let run = client.start_once("top", asked.clone(), "the key").await;
    let result = client.result(&run).await;
    assert_eq!(result["state"], "succeeded", "{result}");
    eventually("the seal", async || client.seals(&run).await == 1).await;
    let before = all_about(&cluster, &run).await;
    let ended = Instant::now();
    eventually("another minute", async || ended.elapsed() > APART).await;

    // Nothing is left of the first hosts.
    cluster.gateways.clear();
    for node in cluster.nodes.drain(..) {
        node.stop().await;
    }
    cluster.clock = Arc::new(Later);
    cluster.log_age = Some(AGE);
    cluster.add_gateway().await;
    add_host(&mut cluster, &starts).await;
    wait_until_released(&cluster, &run).await;
    assert_eq!(all_about(&cluster, &run).await, before);

    // A gateway that rebuilds its lists from the archive.
    cluster.gateways.clear();
    cluster.add_gateway().await;
    assert_eq!(all_about(&cluster, &run).await, before);

    assert_eq!(starts.load(Ordering::Relaxed), 1);
    let client = cluster.client(0);
    let again = client.start_once("top", asked, "the key").await;
    assert_eq!(again, run, "a key lives as long as its run");

    let recorded = work(&client, &run).await;
    let taken_over = rerun(&cluster, &run, &[]).await;
    assert_eq!(taken_over["output"], result["output"]);
    let taken_over = taken_over["id"].as_str().expect("an id");
    assert_eq!(work(&client, taken_over).await, recorded, "its digests");
    assert_eq!(starts.load(Ordering::Relaxed), 1, "it was taken over");
    let fresh = rerun(&cluster, &run, &["--fresh"]).await;
    assert_eq!(fresh["output"], result["output"]);
    assert_eq!(starts.load(Ordering::Relaxed), 2, "it was run again");
    let fresh = fresh["id"].as_str().expect("an id");
    assert_eq!(work(&client, fresh).await, recorded, "its digests");
    let (_, fresh) = client.get(&format!("/v1/runs/{fresh}")).await;
    let (_, old) = client.get(&format!("/v1/runs/{run}")).await;
    assert_ne!(fresh["node"], old["node"], "another host");
}
