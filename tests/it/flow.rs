//! Flow control from the outside: one or two real gateways, a real broker, capsules as functions that wait until the
//! test releases them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aod_domain::admission::Capacity;
use aod_domain::event::CloudEvent;
use aod_domain::flow;
use aod_jetstream::Broker;
use aod_ports::clock::SystemClock;
use aod_ports::event_log::{Append, EventLog as _, Guard};
use aod_services::runs::Runs;
use aod_tests::client::{Client, eventually};
use aod_tests::cluster::{Cluster, any_schema};
use aod_tests::programs::ask;
use aod_tests::simulated::{Command, Inside, handoff, runtime};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The state of the capsules.
#[derive(Clone)]
pub(crate) struct Story {
    state: Arc<Mutex<State>>,
    /// `hold` may end up to this number.
    released: watch::Sender<i64>,
}

#[derive(Default)]
struct State {
    /// The numbers of `hold` in the order of their starts.
    started: Vec<i64>,
    going: BTreeSet<i64>,
    /// Maximum number of concurrent runs.
    most: usize,
}

impl Story {
    pub(crate) fn new() -> Self {
        let (state, released) = (Arc::default(), watch::Sender::new(0));
        Self { state, released }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn started(&self) -> Vec<i64> {
        self.state().started.clone()
    }

    pub(crate) fn release_all(&self) {
        self.released.send_replace(i64::MAX);
    }

    /// Runs until its number is released.
    pub(crate) fn hold(&self) -> Command {
        let story = self.clone();
        Arc::new(move |inside: Inside| {
            let story = story.clone();
            Box::pin(async move {
                let number = inside.input()["number"].as_i64().unwrap_or(1);
                {
                    let mut state = story.state();
                    state.started.push(number);
                    state.going.insert(number);
                    state.most = state.most.max(state.going.len());
                }
                let mut released = story.released.subscribe();
                drop(released.wait_for(|up_to| number <= *up_to).await);
                story.state().going.remove(&number);
                inside.write_output(&json!({"number": number}));
                0
            })
        })
    }
}

/// Calls `hold` with each of its numbers, concurrently.
pub(crate) fn spread() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let numbers = inside.input()["numbers"].clone();
            let numbers = numbers.as_array().expect("numbers");
            let bodies: Vec<Value> = numbers
                .iter()
                .map(|number| json!({"target": "hold", "args": {"number": number}}))
                .collect();
            let answers = join_all(bodies.iter().map(|body| handoff(&inside, body))).await;
            let succeeded = answers.iter().filter(|(status, _)| *status == 200);
            inside.write_output(&json!({"succeeded": succeeded.count()}));
            0
        })
    })
}

/// After its number is released, calls `hold` for the given site, and returns the outcome.
pub(crate) fn cross(story: &Story) -> Command {
    let story = story.clone();
    Arc::new(move |inside: Inside| {
        let story = story.clone();
        Box::pin(async move {
            let number = inside.input()["number"].as_i64().expect("a number");
            story.state().started.push(number);
            let mut released = story.released.subscribe();
            drop(released.wait_for(|up_to| number <= *up_to).await);
            let args = json!({"number": 100 + number, "site": inside.input()["next"]});
            let body = json!({"target": "hold", "args": args});
            let (_, answer) = handoff(&inside, &body).await;
            inside.write_output(&answer);
            0
        })
    })
}

/// Two gateways, and a node with `slots` slots.
pub(crate) async fn cluster(story: &Story, slots: usize) -> Cluster {
    let mut cluster = Cluster::start(2).await;
    let capacity = Capacity {
        slots,
        containers_max: 64,
        memory_bytes: 64 << 30,
    };
    let capsules = [
        ("hold", story.hold()),
        ("spread", spread()),
        ("cross", cross(story)),
    ];
    let capsules = capsules.map(|(name, command)| (name.to_owned(), command));
    cluster
        .add_node(&["any"], capacity, runtime(capsules))
        .await;
    for name in ["hold", "spread", "cross"] {
        cluster.register(name, &any_schema()).await;
    }
    cluster
}

/// Acts as an operator whose gateway stores the removal and dies.
async fn remove_rule(broker: &Broker, name: &str) {
    let event = flow::Event::Removed {
        name: name.parse().expect("a name"),
        requested_by: "operator".into(),
    };
    let log = Arc::new(broker.event_log());
    let (shared, clock) = (Arc::clone(&log) as _, Arc::new(SystemClock) as _);
    let header = Runs::new(shared, clock, "/tests").header();
    let subject = event.subject();
    let event = CloudEvent::new(header, format!("rule/{name}"), None, event);
    let append = Append::of(subject, Guard::None, &event).expect("a small event");
    log.append(append).await.expect("it is stored");
}

/// The output of the real `aod` for an operator's command.
pub(crate) async fn operate(cluster: &Cluster, words: &[&str]) -> String {
    let output = ask(cluster.gateways[0].url(), 0, words).await;
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) async fn hold(client: &Client, number: i64, team: &str, priority: i8) -> String {
    let body = json!({"labels": {"team": team}, "priority": priority});
    client
        .start_with("hold", json!({"number": number}), body)
        .await
}

async fn view(client: &Client, run: &str) -> Value {
    let (status, view) = client.get(&format!("/v1/runs/{run}")).await;
    assert_eq!(status, 200, "{view}");
    view
}

/// The reason why `run` waits, once it is as `expected`.
async fn waits_for(client: &Client, run: &str, expected: impl Fn(&str) -> bool) -> String {
    let last = Mutex::new(String::new());
    let is_told = async || {
        let view = view(client, run).await;
        let text = view["waits_for"].as_str().unwrap_or_default().to_owned();
        let is_told = expected(&text);
        *last.lock().expect("no panic with the lock") = text;
        is_told
    };
    eventually("a reason to wait", is_told).await;
    last.into_inner().expect("no panic with the lock")
}

pub(crate) async fn all_succeed(client: &Client, runs: &[String]) {
    for run in runs {
        let result = client.result(run).await;
        assert_eq!(result["state"], "succeeded", "{result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrency_limit_holds_across_gateways() {
    let story = Story::new();
    let cluster = cluster(&story, 8).await;
    let set = [
        "rules",
        "set",
        "teams",
        "--key",
        "label:team",
        "--concurrency",
        "2",
    ];
    let told = operate(&cluster, &set).await;
    assert_eq!(
        told.trim(),
        "rule teams for all capsules, by key label:team: 2 concurrent"
    );
    let clients = [cluster.client(0), cluster.client(1)];
    eventually("both gateways know the rule", async || {
        clients[1].get("/v1/rules").await.1["items"][0]["name"] == "teams"
    })
    .await;
    let mut runs = Vec::new();
    for number in 1..=6 {
        let client = &clients[usize::try_from(number % 2).expect("0 or 1")];
        runs.push(hold(client, number, "a", 0).await);
    }
    let other = hold(&clients[0], 7, "b", 0).await;
    eventually("two of one team and one of the other", async || {
        story.started().len() == 3
    })
    .await;
    let right = |text: &str| text.contains("number 4 in line");
    let expected = format!(
        "rule teams for a allows 2 concurrent runs: {}, {}; number 4 in line",
        runs[0], runs[1]
    );
    for client in &clients {
        assert_eq!(waits_for(client, &runs[5], right).await, expected);
    }
    let waiting = view(&clients[1], &runs[2]).await;
    assert_eq!(waiting["state"], "queued");
    let table = operate(&cluster, &["rules", "ls"]).await;
    assert!(
        table.contains("2 concurrent") && table.contains("label:team"),
        "{table}"
    );

    story.release_all();
    all_succeed(&clients[1], &runs).await;
    all_succeed(&clients[0], &[other]).await;
    assert_eq!(story.state().most, 3);
    assert_eq!(story.started().len(), 7, "each was started once");
}

#[tokio::test(flavor = "multi_thread")]
async fn callees_wait_for_a_bucket_and_never_for_their_callers() {
    let story = Story::new();
    let cluster = cluster(&story, 2).await;
    let set = [
        "rules",
        "set",
        "hold",
        "--capsule",
        "hold",
        "--concurrency",
        "1",
    ];
    operate(&cluster, &set).await;
    operate(&cluster, &["rules", "set", "all", "--concurrency", "2"]).await;
    let client = cluster.client(0);
    let mut runs = Vec::new();
    for first in [1, 4, 7] {
        let numbers: Vec<i64> = (first..first + 3).collect();
        runs.push(client.start("spread", json!({"numbers": numbers})).await);
    }
    story.release_all();
    for run in &runs {
        let result = client.result(run).await;
        assert_eq!(result["output"]["succeeded"], 3, "{result}");
    }
    assert_eq!(story.state().most, 1, "{:?}", story.started());
    let replay = operate(&cluster, &["runs", "replay", &runs[0]]).await;
    assert!(replay.contains("equal"), "{replay}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_runs_start_by_priority_and_can_be_cancelled() {
    let story = Story::new();
    let cluster = cluster(&story, 8).await;
    operate(&cluster, &["rules", "set", "one", "--concurrency", "1"]).await;
    let client = cluster.client(0);
    let first = hold(&client, 1, "a", 0).await;
    eventually("the first goes", async || story.started() == [1]).await;
    let late = hold(&client, 4, "a", -1).await;
    let second = hold(&client, 2, "a", 9).await;
    let unwanted = hold(&client, 5, "a", 5).await;
    let third = hold(&client, 3, "a", 1).await;
    client.post(&format!("/v1/runs/{unwanted}/cancel")).await;
    let cancelled = client.result(&unwanted).await;
    assert_eq!(cancelled["state"], "cancelled");
    for number in 1..=4 {
        eventually("the next goes", async || {
            story.started().last() == Some(&number)
        })
        .await;
        story.released.send_replace(number);
    }
    all_succeed(&client, &[first, second, third, late]).await;
    assert_eq!(story.started(), [1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_gateway_admits_after_the_first_has_died() {
    let story = Story::new();
    let mut cluster = cluster(&story, 8).await;
    operate(&cluster, &["rules", "set", "one", "--concurrency", "1"]).await;
    let client = cluster.client(1);
    eventually("the other gateway knows the rule", async || {
        client.get("/v1/rules").await.1["items"][0]["name"] == "one"
    })
    .await;
    let mut runs = Vec::new();
    for number in 1..=3 {
        runs.push(hold(&client, number, "a", 0).await);
    }
    eventually("the first goes", async || story.started() == [1]).await;
    drop(cluster.gateways.remove(0));
    story.release_all();
    all_succeed(&client, &runs).await;
    assert_eq!(story.state().most, 1);

    // A new gateway knows the earlier admissions.
    runs.clear();
    story.released.send_replace(3);
    runs.push(hold(&client, 11, "a", 0).await);
    eventually("it goes", async || story.started().contains(&11)).await;
    runs.push(hold(&client, 12, "a", 0).await);
    cluster.add_gateway().await;
    let newest = cluster.client(cluster.gateways.len() - 1);
    let expected = format!(
        "rule one allows 1 concurrent run: {}; next in line",
        runs[0]
    );
    let right = |text: &str| text.starts_with("rule one allows 1 concurrent run");
    let told = waits_for(&newest, &runs[1], right).await;
    assert_eq!(told.split(", in about").next(), Some(expected.as_str()));
    drop(cluster.gateways.remove(0));
    story.release_all();
    all_succeed(&newest, &runs).await;
    assert_eq!(story.state().most, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_a_rule_admits_its_waiting_runs() {
    let story = Story::new();
    let cluster = cluster(&story, 8).await;
    let set = ["rules", "set", "stop", "--concurrency", "0"];
    operate(&cluster, &set).await;
    let client = cluster.client(0);
    let run = hold(&client, 1, "a", 0).await;
    let right = |text: &str| text == "rule stop allows no runs; next in line";
    waits_for(&client, &run, right).await;
    let set = ["rules", "set", "stop", "--rate", "1/3600"];
    operate(&cluster, &set).await;
    story.release_all();
    all_succeed(&client, std::slice::from_ref(&run)).await;
    let next = hold(&client, 2, "a", 0).await;
    let right =
        |text: &str| text.starts_with("rule stop allows 1 start within 3600 s; next in line");
    waits_for(&client, &next, right).await;
    operate(&cluster, &["rules", "rm", "stop"]).await;
    all_succeed(&client, &[next]).await;
    assert_eq!(client.get("/v1/rules").await.1["items"], json!([]));
    ask(cluster.gateways[0].url(), 2, &["rules", "rm", "stop"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_is_admitted_when_its_rule_was_removed_without_a_gateway() {
    let story = Story::new();
    let mut cluster = cluster(&story, 8).await;
    let older = hold(&cluster.client(0), 9, "a", 0).await;
    eventually("an older one goes", async || story.started() == [9]).await;
    operate(&cluster, &["rules", "set", "stop", "--concurrency", "0"]).await;
    let run = hold(&cluster.client(0), 1, "a", 0).await;
    cluster.gateways.clear();
    let broker = cluster.broker("operator").await;
    remove_rule(&broker, "stop").await;
    cluster.add_gateway().await;
    story.released.send_replace(1);
    all_succeed(&cluster.client(0), &[run]).await;
    story.release_all();
    all_succeed(&cluster.client(0), &[older]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_counts_admissions_from_before_the_gateway_started() {
    let story = Story::new();
    let mut cluster = cluster(&story, 8).await;
    operate(&cluster, &["rules", "set", "rated", "--rate", "2/3600"]).await;
    story.release_all();
    let client = cluster.client(0);
    let first = [
        hold(&client, 1, "a", 0).await,
        hold(&client, 2, "a", 0).await,
    ];
    all_succeed(&client, &first).await;
    cluster.gateways.clear();
    cluster.add_gateway().await;
    let client = cluster.client(0);
    let third = hold(&client, 3, "a", 0).await;
    let right =
        |text: &str| text.starts_with("rule rated allows 2 starts within 3600 s; next in line");
    waits_for(&client, &third, right).await;
    let started: BTreeSet<i64> = story.started().into_iter().collect();
    assert_eq!(started, BTreeSet::from([1, 2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn youngest_call_fails_when_trees_wait_for_each_other() {
    let story = Story::new();
    let cluster = cluster(&story, 8).await;
    let key = ["--key", "argument:/site", "--concurrency", "1"];
    operate(&cluster, &[&["rules", "set", "sites"], &key[..]].concat()).await;
    let client = cluster.client(0);
    let mut runs = Vec::new();
    for (number, site, next) in [(1, "a", "b"), (2, "b", "a")] {
        let arguments = json!({"number": number, "site": site, "next": next});
        runs.push(client.start("cross", arguments).await);
    }
    eventually("both have their buckets", async || {
        story.started().len() == 2
    })
    .await;
    story.released.send_replace(2);
    let going = [BTreeSet::from([101]), BTreeSet::from([102])];
    eventually("one of the callees goes", async || {
        going.contains(&story.state().going)
    })
    .await;
    story.release_all();
    let mut answers = Vec::new();
    for run in &runs {
        let result = client.result(run).await;
        assert_eq!(result["state"], "succeeded", "{result}");
        answers.push(result["output"].clone());
    }
    answers.sort_by_key(|answer| answer["success"].as_bool());
    assert_eq!(answers[1]["success"], true, "{answers:?}");
    let error = &answers[0]["error"];
    assert_eq!(error["code"], "admission_deadlock", "{answers:?}");
    let message = error["message"].as_str().expect("a message");
    let named = "flow-control deadlock: rule sites for ";
    assert!(message.starts_with(named), "{message}");
    assert_eq!(story.started().len(), 3, "the other callee never began");
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_counts_admissions_of_runs_requested_before_its_window() {
    let story = Story::new();
    let mut cluster = cluster(&story, 8).await;
    operate(&cluster, &["rules", "set", "rated", "--rate", "1/3"]).await;
    story.release_all();
    let client = cluster.client(0);
    let mut runs = Vec::new();
    for number in 1..=4 {
        runs.push(hold(&client, number, "a", 0).await);
    }
    all_succeed(&client, &runs[..3]).await;
    eventually(
        "the lists that the next gateway begins with have them",
        async || {
            let ended = client.get("/v1/runs?state=succeeded").await.1;
            ended["items"].as_array().map(Vec::len) == Some(3)
        },
    )
    .await;
    // The third began within the window, and was requested long before it.
    cluster.gateways.clear();
    cluster.add_gateway().await;
    all_succeed(&cluster.client(0), &runs).await;
    let query = ["events", "query", "--type", "granted", "--format", "json"];
    let granted = operate(&cluster, &query).await;
    let times: Vec<Timestamp> = granted
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .map(|event| event["time"].as_str().expect("a time").parse())
        .collect::<Result<_, _>>()
        .expect("times");
    assert_eq!(times.len(), 4, "{granted}");
    let pauses = times.windows(2).map(|two| two[1].duration_since(two[0]));
    assert!(
        pauses.min() >= Some(SignedDuration::from_secs(3)),
        "{granted}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_of_a_tree_that_waited_for_admission_verifies() {
    let story = Story::new();
    let cluster = cluster(&story, 8).await;
    operate(
        &cluster,
        &[
            "rules",
            "set",
            "hold",
            "--capsule",
            "hold",
            "--concurrency",
            "1",
        ],
    )
    .await;
    operate(&cluster, &["rules", "set", "all"]).await;
    story.release_all();
    let client = cluster.client(0);
    let run = client.start("spread", json!({"numbers": [1, 2, 3]})).await;
    all_succeed(&client, std::slice::from_ref(&run)).await;
    eventually("the tree is sealed", async || client.seals(&run).await == 1).await;
    let bundle = cluster.data("bundle").join("bundle.tar");
    std::fs::create_dir_all(bundle.parent().expect("a directory")).expect("a directory");
    let bundle = bundle.to_str().expect("a path");
    operate(&cluster, &["audit", "export", &run, "-o", bundle]).await;
    operate(&cluster, &["audit", "verify", bundle]).await;
    let events = operate(
        &cluster,
        &["events", "query", "--tree", &run, "--type", "admitted"],
    )
    .await;
    assert_eq!(events.matches(" admitted ").count(), 4, "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_rule_is_rejected_with_all_its_problems() {
    let story = Story::new();
    let cluster = cluster(&story, 1).await;
    let body = json!({
        "key": ["colour", "label:team"], "concurrency": -1, "rate": {"runs": 0, "second": 1},
        "weights": {"a": 0}, "fairness": true,
    });
    let request = reqwest::Client::new()
        .put(format!("{}/v1/rules/teams", cluster.gateways[0].url()))
        .json(&body);
    let answer = request.send().await.expect("the gateway answers");
    assert_eq!(answer.status(), 400);
    let problem: Value = answer.json().await.expect("JSON");
    let errors = problem["errors"].as_array().expect("errors");
    let pointers: BTreeSet<&str> = errors
        .iter()
        .filter_map(|error| error["pointer"].as_str())
        .collect();
    let expected = [
        "/key/0",
        "/concurrency",
        "/rate/runs",
        "/rate/seconds",
        "/rate/second",
        "/weights/a",
        "/fairness",
    ];
    assert_eq!(pointers, BTreeSet::from(expected), "{problem:#}");
}
