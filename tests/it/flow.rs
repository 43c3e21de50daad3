//! Flow control as people meet it: a real gateway or two, a real broker, capsules that are functions and
//! wait until they are let go.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aod_domain::admission::Capacity;
use aod_domain::event::CloudEvent;
use aod_domain::flow;
use aod_jetstream::Broker;
use aod_ports::clock::SystemClock;
use aod_ports::event_log::{Append, EventLog as _, Guard};
use aod_ports::runs::Runs;
use aod_tests::client::{Client, eventually};
use aod_tests::cluster::{Cluster, any_schema};
use aod_tests::programs::ask;
use aod_tests::simulated::{Command, Inside, handoff, runtime};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;

/// What the capsules do.
#[derive(Clone)]
pub(crate) struct Story {
    state: Arc<Mutex<State>>,
    /// Up to which number `hold` may end.
    released: watch::Sender<i64>,
}

#[derive(Default)]
struct State {
    /// The numbers of `hold` in the order in which it was started.
    started: Vec<i64>,
    going: BTreeSet<i64>,
    /// The most that went at once.
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

    /// Goes on until its number is released.
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

/// Calls `hold` with each of its numbers, all at once.
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

/// Once its number is released, calls `hold` for the site that it is told, and tells what came of it.
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

/// Two gateways, and a node with so many slots.
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

/// As an operator whose gateway stores it and dies.
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

/// What the real `aod` prints when an operator asks it.
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

/// Why `run` waits, once `is_right` says that this is what is looked for.
async fn waits_for(client: &Client, run: &str, expected: impl Fn(&str) -> bool) -> String {
    let last = Mutex::new(String::new());
    let is_told = async || {
        let view = view(client, run).await;
        let text = view["waits_for"].as_str().unwrap_or_default().to_owned();
        let is_told = expected(&text);
        *last.lock().expect("nobody panics") = text;
        is_told
    };
    eventually("a reason to wait", is_told).await;
    last.into_inner().expect("nobody panics")
}

pub(crate) async fn all_succeed(client: &Client, runs: &[String]) {
    for run in runs {
        let result = client.result(run).await;
        assert_eq!(result["state"], "succeeded", "{result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_whichever_gateway_is_asked() {
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
        "rule teams for all capsules, by label:team: 2 at once"
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
        "rule teams for a lets 2 go at once: {}, {}; it is number 4 in line",
        runs[0], runs[1]
    );
    for client in &clients {
        assert_eq!(waits_for(client, &runs[5], right).await, expected);
    }
    let waiting = view(&clients[1], &runs[2]).await;
    assert_eq!(waiting["state"], "requested");
    let table = operate(&cluster, &["rules", "ls"]).await;
    assert!(
        table.contains("2 at once") && table.contains("label:team"),
        "{table}"
    );

    story.release_all();
    all_succeed(&clients[1], &runs).await;
    all_succeed(&clients[0], &[other]).await;
    assert_eq!(story.state().most, 3);
    assert_eq!(story.started().len(), 7, "each was started once");
}

#[tokio::test(flavor = "multi_thread")]
async fn callees_wait_for_a_room_and_never_for_their_callers() {
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
async fn who_waits_goes_by_priority_and_may_be_cancelled_meanwhile() {
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
async fn another_gateway_admits_when_the_first_is_gone() {
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

    // One that is new knows what was before it.
    runs.clear();
    story.released.send_replace(3);
    runs.push(hold(&client, 11, "a", 0).await);
    eventually("it goes", async || story.started().contains(&11)).await;
    runs.push(hold(&client, 12, "a", 0).await);
    cluster.add_gateway().await;
    let newest = cluster.client(cluster.gateways.len() - 1);
    let expected = format!("rule one lets 1 go at once: {}; it is next", runs[0]);
    let right = |text: &str| text.starts_with("rule one lets 1 go at once");
    let told = waits_for(&newest, &runs[1], right).await;
    assert_eq!(told.split(", in about").next(), Some(expected.as_str()));
    drop(cluster.gateways.remove(0));
    story.release_all();
    all_succeed(&newest, &runs).await;
    assert_eq!(story.state().most, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_let_go_when_its_rule_is_removed() {
    let story = Story::new();
    let cluster = cluster(&story, 8).await;
    let set = ["rules", "set", "stop", "--concurrency", "0"];
    operate(&cluster, &set).await;
    let client = cluster.client(0);
    let run = hold(&client, 1, "a", 0).await;
    let right = |text: &str| text == "rule stop lets nobody go; it is next";
    waits_for(&client, &run, right).await;
    let set = ["rules", "set", "stop", "--rate", "1/3600"];
    operate(&cluster, &set).await;
    story.release_all();
    all_succeed(&client, std::slice::from_ref(&run)).await;
    let next = hold(&client, 2, "a", 0).await;
    let right = |text: &str| text.starts_with("rule stop lets 1 begin within 3600 s; it is next");
    waits_for(&client, &next, right).await;
    operate(&cluster, &["rules", "rm", "stop"]).await;
    all_succeed(&client, &[next]).await;
    assert_eq!(client.get("/v1/rules").await.1["items"], json!([]));
    ask(cluster.gateways[0].url(), 2, &["rules", "rm", "stop"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_by_a_rule_that_went_while_no_gateway_was_there_is_admitted() {
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
async fn a_rate_counts_what_began_before_a_gateway_did() {
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
    let right = |text: &str| text.starts_with("rule rated lets 2 begin within 3600 s; it is next");
    waits_for(&client, &third, right).await;
    let started: BTreeSet<i64> = story.started().into_iter().collect();
    assert_eq!(started, BTreeSet::from([1, 2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_trees_that_wait_for_one_another_the_youngest_call_ends() {
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
    eventually("both have their rooms", async || story.started().len() == 2).await;
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
    let named = "it waited for runs that waited for it: rule sites for ";
    assert!(message.starts_with(named), "{message}");
    assert_eq!(story.started().len(), 3, "the other callee never began");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_counts_what_was_asked_for_before_its_time() {
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
    // The third began within the time, and was asked for long before that.
    cluster.gateways.clear();
    cluster.add_gateway().await;
    all_succeed(&cluster.client(0), &runs).await;
    let query = ["events", "query", "--type", "granted", "--output", "json"];
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
async fn the_bundle_of_a_tree_that_waited_is_whole() {
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
async fn a_rule_that_makes_no_sense_is_refused_with_all_that_is_wrong() {
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
