//! What gateways and nodes may not do to the broker, tried with their own credentials on a real server; and that
//! all that they have to do goes on with the same credentials.

use std::sync::Arc;

use aod_domain::admission::Capacity;
use aod_domain::placement::Equipment;
use aod_jetstream::object_store::BucketConfig;
use aod_jetstream::rights::{Part, User, configuration};
use aod_jetstream::{Broker, Config, Credentials};
use aod_ports::log_stream::Output;
use aod_ports::presence::{GatewayMember, Member, Presence as _};
use aod_ports::work_queue::WorkQueue as _;
use aod_testkit::{NatsConfig, NatsServer};
use aod_tests::client::eventually;
use aod_tests::cluster::{Cluster, Ways, any_schema, limits, password_of};
use aod_tests::nats::Connection;
use aod_tests::programs::ask;
use aod_tests::simulated::{Command, Inside, handoff, runtime};
use jiff::SignedDuration;
use serde_json::{Value, json};

/// How many things each part is to be refused at the least.
const REFUSALS_MIN: usize = 15;

/// A run that nobody has.
const RUN: &str = "ev.default.run.r.r";

/// What is said, and what it would do.
type Attempt = (&'static str, String);

/// Everything about the broker that must stay as it is.
type State = Vec<(String, Value)>;

fn server(configuration: String) -> NatsServer {
    NatsServer::start(NatsConfig {
        extra: configuration,
        ..NatsConfig::default()
    })
}

fn credentials(part: &str) -> Credentials {
    Credentials::UserPassword {
        user: part.to_owned(),
        password: password_of(part),
    }
}

async fn connect(server: &NatsServer, part: &str) -> Broker {
    let config = Config {
        credentials: credentials(part),
        makes_streams: part != "node",
        ..Config::new(server.url(), format!("test-{part}"))
    };
    Broker::connect(config).await.expect("the broker takes us")
}

fn by_hand(server: &NatsServer, user: &str) -> Connection {
    Connection::open(server.address(), user, &password_of(user)).expect("the broker takes us")
}

/// A broker on which a gateway has made everything, with a launch that waits; nothing runs on it.
async fn quiet() -> NatsServer {
    let server = server(limits());
    let gateway = connect(&server, "gateway").await;
    let any = "any".parse().expect("a label");
    gateway.work_queue().ensure(&any).await.expect("a queue");
    gateway.feed("seals").await.expect("a feed");
    let bucket = BucketConfig {
        stream: "FILES".to_owned(),
        bucket: "artifacts".to_owned(),
        bytes_max: 1 << 30,
        replicas: 1,
    };
    let opened = gateway.open_object_store(&bucket).await;
    opened.expect("a store");
    let mut admin = by_hand(&server, "admin");
    for kind in ["launch.any.root", "lease", "cancel"] {
        let stored = admin.request(&format!("{RUN}.s.{kind}"), b"{\"some\":\"event\"}");
        assert!(stored.expect("an answer").json()["seq"].is_u64());
    }
    // The server takes the launch into the queue in its own time.
    eventually("the launch in the queue", async || {
        let mut admin = by_hand(&server, "admin");
        let work = admin.request("$JS.API.STREAM.INFO.WORK", b"");
        work.expect("an answer").json()["state"]["messages"] == 1
    })
    .await;
    server
}

/// The streams with all that they hold, and their consumers.
fn state(server: &NatsServer) -> State {
    let mut admin = by_hand(server, "admin");
    let mut ask = |subject: String| {
        let answer = admin.request(&subject, b"{}").expect("an answer").json();
        assert!(answer["error"].is_null(), "{subject}: {answer}");
        answer
    };
    let mut state = State::new();
    let streams = ask("$JS.API.STREAM.LIST".to_owned());
    for stream in streams["streams"].as_array().expect("streams") {
        let name = stream["config"]["name"].as_str().expect("a name");
        let held = &stream["state"];
        let told = json!([stream["config"], held["messages"], held["last_seq"]]);
        state.push((name.to_owned(), told));
        let consumers = ask(format!("$JS.API.CONSUMER.LIST.{name}"));
        for consumer in consumers["consumers"].as_array().expect("consumers") {
            let told = json!([
                consumer["config"],
                consumer["num_pending"],
                consumer["num_ack_pending"]
            ]);
            state.push((format!("{name} {}", consumer["name"]), told));
        }
    }
    state
}

/// What nobody but the admin may do.
fn of_admins() -> Vec<Attempt> {
    let other = json!({"name": "OTHER", "subjects": ["other.>"]}).to_string();
    vec![
        ("$JS.API.STREAM.PURGE.EVENTS", String::new()),
        ("$JS.API.STREAM.DELETE.EVENTS", String::new()),
        ("$JS.API.STREAM.DELETE.WORK", String::new()),
        ("$JS.API.STREAM.DELETE.FILES", String::new()),
        (
            "$JS.API.STREAM.MSG.DELETE.EVENTS",
            json!({"seq": 1}).to_string(),
        ),
        ("$JS.API.STREAM.CREATE.OTHER", other),
        (
            "$JS.API.STREAM.SNAPSHOT.EVENTS",
            json!({"deliver_subject": "_INBOX.x"}).to_string(),
        ),
        ("$JS.API.STREAM.RESTORE.OTHER", String::new()),
        ("$JS.API.STREAM.LIST", String::new()),
        ("$JS.API.CONSUMER.DELETE.EVENTS.seals", String::new()),
        ("$JS.API.CONSUMER.PAUSE.WORK.any-root", String::new()),
        ("$JS.API.ACCOUNT.PURGE.AOD", String::new()),
        ("$SYS.REQ.SERVER.PING", String::new()),
        ("$SYS.REQ.ACCOUNT.AOD.CONNZ", String::new()),
        ("anything.else", String::new()),
    ]
}

fn event(kind: &'static str) -> Attempt {
    (kind, json!({"type": "dev.aod.anything.v1"}).to_string())
}

/// Events and requests that are a gateway's.
fn forbidden_to_nodes() -> Vec<Attempt> {
    let slow = json!({"stream_name": "WORK", "config": {
        "durable_name": "any-root", "ack_policy": "explicit", "ack_wait": 1,
        "filter_subject": "ev.*.run.*.*.s.launch.any.root",
    }});
    let all = json!({"stream_name": "EVENTS", "config": {"name": "x", "filter_subject": "ev.>"}});
    let deaf = json!({"stream_name": "EVENTS", "config": {
        "durable_name": "seals", "ack_policy": "explicit", "filter_subject": "ev.*.run.*.*.s.cancel",
    }});
    let forgetful =
        json!({"name": "EVENTS", "subjects": ["ev.>"], "max_age": 1_000_000_000}).to_string();
    let mut attempts = vec![
        event("ev.default.run.r.r.s.launch.any.root"),
        event("ev.default.run.r.r.s.request"),
        event("ev.default.run.r.r.s.reuse"),
        event("ev.default.run.r.r.s.cancel"),
        event("ev.default.run.r.r.s.returned"),
        event("ev.default.run.r.r.s.sealed"),
        event("ev.default.capsule.probe.registered"),
        event("ev.default.file.f.uploaded"),
        event("ev.default.token.t.issued"),
        event("ev.default.token.t.revoked"),
        event("ev.default.placement.any.asked"),
        event("ev.default.archive.log.archived"),
        event("ev.default.archive.log.released"),
        event("ev.default.retention.r.held"),
        event("ev.default.retention.all.policy_set"),
        event("ev.default.artifact.0.collected"),
        event("ev.default.rule.all.set"),
        event("ev.default.rule.all.removed"),
        event("ev.default.admission.runs.granted"),
        event("ev.default.deadletter.r.requeued"),
        event("ev.default.deadletter.r.purged"),
        event("ev.default.node.n.drain"),
        event("ev.default.node.n.resume"),
        event("$KV.PRESENCE.gateway.g"),
        ("$JS.API.STREAM.CREATE.EVENTS", String::new()),
        ("$JS.API.STREAM.UPDATE.EVENTS", forgetful),
        ("$JS.API.STREAM.UPDATE.WORK", String::new()),
        ("$JS.API.CONSUMER.DELETE.WORK.any-root", String::new()),
        ("$JS.API.STREAM.PURGE.FILES", String::new()),
        (
            "$JS.API.CONSUMER.CREATE.WORK.any-root.ev.*.run.*.*.s.launch.any.root",
            slow.to_string(),
        ),
        ("$JS.API.CONSUMER.CREATE.EVENTS.x.ev.>", all.to_string()),
        (
            "$JS.API.CONSUMER.CREATE.EVENTS.seals.ev.*.run.*.*.s.cancel",
            deaf.to_string(),
        ),
        ("$JS.API.CONSUMER.CREATE.EVENTS.x", all.to_string()),
        ("$JS.API.CONSUMER.CREATE.EVENTS", all.to_string()),
        ("$JS.API.CONSUMER.DURABLE.CREATE.EVENTS.x", all.to_string()),
        (
            "$JS.API.CONSUMER.MSG.NEXT.EVENTS.seals",
            json!({"batch": 1, "no_wait": true}).to_string(),
        ),
    ];
    attempts.extend(of_admins());
    attempts
}

/// Events and requests that are a node's.
fn forbidden_to_gateways() -> Vec<Attempt> {
    let next = json!({"batch": 1, "no_wait": true}).to_string();
    let mut attempts = vec![
        event("ev.default.run.r.r.s.delivered"),
        event("ev.default.run.r.r.s.attempt_lost"),
        event("ev.default.run.r.r.s.refused"),
        event("ev.default.run.r.r.s.attempt_failed"),
        event("ev.default.run.r.r.n.running"),
        event("ev.default.run.r.r.n.egress"),
        event("ev.default.run.r.r.m.reserved"),
        event("ev.default.run.r.r.m.settled"),
        event("log.default.r.r.1"),
        event("$KV.PRESENCE.node.n"),
        event("offer.n"),
        ("$JS.API.CONSUMER.MSG.NEXT.WORK.any-root", next),
        ("$JS.ACK.WORK.any-root.1.1.1.1.0", "+ACK".to_owned()),
    ];
    attempts.extend(of_admins());
    attempts
}

/// Each attempt is refused by name, and so is listening to what is another's; nothing has changed.
fn all_is_refused(server: &NatsServer, part: &str, attempts: &[Attempt], others: &str) {
    let before = state(server);
    let mut refused = 0;
    for (subject, body) in attempts {
        let mut connection = by_hand(server, part);
        let inbox = connection.inbox();
        connection.publish(subject, &inbox, body.as_bytes());
        let heard = connection.hear();
        let expected = format!("Permissions Violation for Publish to \"{subject}\"");
        let is_refused = heard
            .complaints
            .iter()
            .any(|complaint| complaint.contains(&expected));
        assert!(is_refused, "{part} may publish to {subject}: {heard:?}");
        refused += 1;
    }
    for subject in [
        ">",
        "ev.>",
        "log.>",
        "$JS.API.>",
        "$SYS.>",
        &format!("_INBOX.{others}.>"),
    ] {
        let mut connection = by_hand(server, part);
        connection.subscribe(subject);
        let heard = connection.hear();
        let expected = format!("Permissions Violation for Subscription to \"{subject}\"");
        let is_refused = heard
            .complaints
            .iter()
            .any(|complaint| complaint.contains(&expected));
        assert!(is_refused, "{part} may listen to {subject}: {heard:?}");
        refused += 1;
    }
    assert_eq!(state(server), before);
    assert!(refused >= REFUSALS_MIN, "only {refused}");
    eprintln!("{part}: {refused} things that it must not do are refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_refused_what_is_not_a_nodes() {
    let server = quiet().await;
    all_is_refused(&server, "node", &forbidden_to_nodes(), "gateway");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_refused_what_is_not_a_gateways() {
    let server = quiet().await;
    all_is_refused(&server, "gateway", &forbidden_to_gateways(), "node");
}

/// A server sends an answer to any reply subject, without asking whether the one who asked may publish there.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_the_broker_say_what_he_may_not() {
    let server = quiet().await;
    let artifact = b"{\"forged\":true}";
    let mine = |part: &str| match part {
        "node" => "ev.default.run.r.r.n.running",
        _ => "ev.default.run.r.r.s.request",
    };
    for part in ["node", "gateway"] {
        let mut connection = by_hand(&server, part);
        for subject in ["obj.artifacts.m.Zm9yZ2Vk", mine(part)] {
            let stored = connection
                .request(subject, artifact)
                .expect("an answer")
                .json();
            assert!(stored["seq"].is_u64(), "{part} {subject}: {stored}");
        }
        let mut listener = by_hand(&server, if part == "node" { "gateway" } else { "node" });
        let foreign_inbox = listener.inbox();
        let before = state(&server);
        let own = json!({"last_by_subj": mine(part)}).to_string();
        for reply in [
            "ev.default.rule.all.set",
            "ev.default.run.x.x.s.launch.any.root",
            "ev.default.run.r.r.m.settled",
            "$KV.PRESENCE.gateway.g",
            "$JS.API.STREAM.DELETE.FILES",
            "$JS.API.STREAM.PURGE.FILES",
            "log.default.r.r.1",
            &foreign_inbox,
        ] {
            connection.publish(
                "$JS.API.DIRECT.GET.FILES.obj.artifacts.m.Zm9yZ2Vk",
                reply,
                b"",
            );
            connection.publish("$JS.API.DIRECT.GET.EVENTS", reply, own.as_bytes());
            let complaints = connection.hear().complaints;
            assert_eq!(
                complaints,
                Vec::<String>::new(),
                "it may ask for what it wrote"
            );
        }
        // What was asked for came: only not there.
        let own = connection.request("$JS.API.DIRECT.GET.FILES.obj.artifacts.m.Zm9yZ2Vk", b"");
        assert!(own.expect("an answer").bytes.ends_with(artifact));
        assert_eq!(state(&server), before, "{part}");
        assert!(listener.hear().messages.is_empty(), "{part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_a_user_of_its_own_has_its_own_inbox_and_is_heard_by_no_other() {
    let user = |name: &str, part| User {
        name: name.to_owned(),
        password: password_of(name),
        part,
    };
    let server = server(configuration(&[
        user("admin", Part::Admin),
        user("node-berlin", Part::Node),
        user("node-tokyo", Part::Node),
    ]));
    let mut berlin = by_hand(&server, "node-berlin");
    let mut tokyo = by_hand(&server, "node-tokyo");
    let inbox = tokyo.inbox();
    let refused = berlin.request(&inbox, b"").unwrap_err();
    assert!(refused.contains("Permissions Violation"), "{refused}");
    tokyo.subscribe("offer.n");
    let _ = tokyo.hear();
    let nobody = berlin.request("offer.n", b"").expect("an answer");
    let text = String::from_utf8_lossy(&nobody.bytes);
    assert!(text.contains("503"), "{text}");
    assert!(tokyo.hear().messages.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_refused_and_nobody_looks_after_the_server() {
    let server = quiet().await;
    for (user, password) in [
        ("", ""),
        ("node", "wrong"),
        ("gateway", ""),
        ("AOD", ""),
        ("$SYS", ""),
    ] {
        let refused = Connection::open(server.address(), user, password).unwrap_err();
        assert!(
            refused.contains("Authorization Violation"),
            "{user}: {refused}"
        );
    }
    let mut admin = by_hand(&server, "admin");
    let answer = admin
        .request("$SYS.REQ.SERVER.PING", b"")
        .expect("an answer");
    assert!(
        String::from_utf8_lossy(&answer.bytes).contains("503"),
        "{answer:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_cannot_pass_for_a_gateway_under_a_nodes_key() {
    let server = quiet().await;
    let node = connect(&server, "node").await;
    let gateway = Member::Gateway(GatewayMember {
        gateway: aod_domain::id::GatewayId::new(uuid::Uuid::from_u128(7)),
        url: "http://192.0.2.9".to_owned(),
        version: "0.1.0".to_owned(),
    });
    assert!(node.presence().announce(&gateway).await.is_err());
    let mut by_hand = by_hand(&server, "node");
    let bytes = serde_json::to_vec(&gateway).expect("JSON");
    let stored = by_hand
        .request("$KV.PRESENCE.node.n", &bytes)
        .expect("an answer")
        .json();
    assert!(stored["seq"].is_u64(), "{stored}");
    assert_eq!(node.presence().members().await.expect("an answer"), []);
}

/// Calls another one, says something, and answers with as much as it was given.
pub(super) fn caller() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let input = inside.input();
            inside.say(Output::Stdout, "calling\n");
            if input["forever"] == true {
                std::future::pending::<()>().await;
            }
            let body = json!({"target": "callee", "args": input});
            let (_, answer) = handoff(&inside, &body).await;
            inside.write_output(&answer["output"]);
            0
        })
    })
}

pub(super) fn callee() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            inside.write_output(&inside.input());
            0
        })
    })
}

/// A cluster whose parts have their own rights: two gateways that let go what nothing names, and a node.
async fn limited() -> Cluster {
    let ways = Ways {
        limited: true,
        ..Ways::default()
    };
    let mut cluster = Cluster::start_on(server(limits()), ways, 0).await;
    cluster.unnamed_for = SignedDuration::ZERO;
    for _ in 0..2 {
        cluster.add_gateway().await;
    }
    add_node(&mut cluster, &["any", "gpu"]).await;
    for name in ["caller", "callee"] {
        cluster.register(name, &any_schema()).await;
    }
    cluster
}

async fn add_node(cluster: &mut Cluster, labels: &[&str]) {
    let capacity = Capacity {
        slots: 2,
        containers_max: 16,
        memory_bytes: 4 << 30,
    };
    let capsules = [("caller", caller()), ("callee", callee())];
    let capsules = capsules.map(|(name, command)| (name.to_owned(), command));
    cluster.add_node(labels, capacity, runtime(capsules)).await;
}

fn assert_nothing_was_refused(cluster: &Cluster) {
    let log = cluster.nats.log();
    let violations: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("Violation"))
        .collect();
    assert_eq!(violations, Vec::<&str>::new());
}

/// All that the parts have to do, each with its own rights: else the refusals above would prove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_each_part_may_do_is_enough_for_runs() {
    let cluster = limited().await;
    let client = cluster.client(0);
    // Arguments and answers that are artifacts, in one message of the store and in several.
    for size in [10, 20_000, 60_000] {
        let arguments = json!({"texts": vec!["x".repeat(size); 3]});
        let run = client.start("caller", arguments.clone()).await;
        let result = client.result(&run).await;
        assert_eq!(result["output"], arguments, "{size}");
        let (status, logs) = client.get(&format!("/v1/runs/{run}/logs")).await;
        assert_eq!(status, 200, "{logs}");
        eventually("a seal", async || client.seals(&run).await == 1).await;
    }
    // A file that is uploaded and named.
    let url = format!("{}/v1/files", cluster.gateways[0].url());
    let sent = reqwest::Client::new().post(url).body("words").send().await;
    let stored: Value = sent.expect("an answer").json().await.expect("JSON");
    let files = json!({"files": [{"name": "words", "file": stored["file"]}]});
    let labelled = json!({"label": "gpu"});
    for with in [files, labelled] {
        let run = client.start_with("callee", json!({}), with.clone()).await;
        let result = client.result(&run).await;
        assert_eq!(result["state"], "succeeded", "{with} {result}");
    }

    let stuck = client.start("caller", json!({"forever": true})).await;
    let path = format!("/v1/runs/{stuck}");
    eventually("it runs", async || {
        client.get(&path).await.1["state"] == "running"
    })
    .await;
    client.post(&format!("{path}/cancel")).await;
    assert_eq!(client.result(&stuck).await["state"], "cancelled");
    assert_nothing_was_refused(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_each_part_may_do_is_enough_for_operators() {
    let cluster = limited().await;
    let client = cluster.client(0);
    let url = cluster.gateways[1].url();
    ask(url, 0, &["rules", "set", "all", "--concurrency", "1"]).await;
    eventually("the rule", async || {
        client.get("/v1/rules").await.1["items"][0]["name"] == "all"
    })
    .await;
    let text = "x".repeat(20_000);
    let admitted = client.start("callee", json!({"text": text})).await;
    assert_eq!(client.result(&admitted).await["state"], "succeeded");
    ask(url, 0, &["nodes", "drain", "node-0"]).await;
    ask(url, 0, &["nodes", "drain", "node-0", "--resume"]).await;
    ask(url, 0, &["events", "query", "--type", "result"]).await;
    let token = "tokens create ci --tenant acme --role run";
    ask(url, 0, &token.split(' ').collect::<Vec<_>>()).await;
    ask(url, 0, &["retention", "set", "all", "--files", "0s"]).await;
    let collected = ask(url, 0, &["--output", "json", "gc"]).await;
    let collected: Value = serde_json::from_slice(&collected.stdout).expect("JSON");
    assert_eq!(collected["failed"], 0, "{collected}");
    let kinds = collected["collected"].as_array().expect("a list");
    assert!(
        kinds.iter().any(|count| count["kind"] == "files"),
        "{collected}"
    );
    assert_nothing_was_refused(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_requirements_that_was_lost_is_opened_again() {
    let mut cluster = limited().await;
    let client = cluster.client(0);
    // What no node has, until one comes; the broker has lost the queue by then.
    let required = json!({"require": ["zone=eu"]});
    let waiting = client.start_with("callee", json!({}), required).await;
    eventually("the lists have it", async || {
        client.get(&format!("/v1/runs/{waiting}")).await.1["state"] == "queued"
    })
    .await;
    let lost = queues_of_requirements(&cluster);
    assert_eq!(lost.len(), 2);
    let mut admin = by_hand(&cluster.nats, "admin");
    for name in lost {
        let removed = admin.request(&format!("$JS.API.CONSUMER.DELETE.WORK.{name}"), b"");
        assert_eq!(removed.expect("an answer").json()["success"], true);
    }
    eventually("its queue once more", async || {
        queues_of_requirements(&cluster).len() == 2
    })
    .await;
    let attribute = Equipment::read_attribute("zone=eu").expect("an attribute");
    cluster.equipment.attributes.extend([attribute]);
    add_node(&mut cluster, &["any"]).await;
    assert_eq!(client.result(&waiting).await["state"], "succeeded");
    assert_nothing_was_refused(&cluster);
}

fn queues_of_requirements(cluster: &Cluster) -> Vec<String> {
    let mut admin = by_hand(&cluster.nats, "admin");
    let answer = admin.request("$JS.API.CONSUMER.NAMES.WORK", b"");
    let names = answer.expect("an answer").json()["consumers"].clone();
    let mut names: Vec<String> = serde_json::from_value(names).expect("names");
    names.retain(|name| name.starts_with("needs-"));
    names
}
