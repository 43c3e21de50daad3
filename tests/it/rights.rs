//! Operations on the broker that are forbidden to gateways and nodes, tried with their own credentials on a real
//! server.

mod enough;

use std::sync::Arc;

use aod_jetstream::object_store::BucketConfig;
use aod_jetstream::rights::{Part, User, configuration};
use aod_jetstream::{Broker, Config, Credentials};
use aod_ports::log_stream::Output;
use aod_ports::presence::{GatewayMember, Member, Presence as _};
use aod_ports::work_queue::WorkQueue as _;
use aod_testkit::{NatsConfig, NatsServer};
use aod_tests::client::eventually;
use aod_tests::cluster::{limits, password_of};
use aod_tests::nats::Connection;
use aod_tests::simulated::{Command, Inside, handoff};
use serde_json::{Value, json};

/// Minimum number of rejections of each part.
const REFUSALS_MIN: usize = 15;

/// A run that no other test has.
const RUN: &str = "ev.default.run.r.r";

/// A subject and the message to publish.
type Attempt = (&'static str, String);

/// The state of the broker that must not change.
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

/// A broker with the streams of a gateway and one waiting launch; no program is connected.
async fn quiet() -> NatsServer {
    let server = server(limits());
    let gateway = connect(&server, "gateway").await;
    let any = "any".parse().expect("a pool");
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
    for kind in ["launched.any.root", "leased", "cancel_requested"] {
        let stored = admin.request(&format!("{RUN}.s.{kind}"), b"{\"some\":\"event\"}");
        assert!(stored.expect("an answer").json()["seq"].is_u64());
    }
    // The server sources the launch into the queue asynchronously.
    eventually("the launch in the queue", async || {
        let mut admin = by_hand(&server, "admin");
        let work = admin.request("$JS.API.STREAM.INFO.WORK", b"");
        work.expect("an answer").json()["state"]["messages"] == 1
    })
    .await;
    server
}

/// The streams with their content, and their consumers.
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

/// Operations that only the admin may use.
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

/// Events and requests that only a gateway may publish.
fn forbidden_to_nodes() -> Vec<Attempt> {
    let slow = json!({"stream_name": "WORK", "config": {
        "durable_name": "any-root", "ack_policy": "explicit", "ack_wait": 1,
        "filter_subject": "ev.*.run.*.*.s.launched.any.root",
    }});
    let all = json!({"stream_name": "EVENTS", "config": {"name": "x", "filter_subject": "ev.>"}});
    let deaf = json!({"stream_name": "EVENTS", "config": {
        "durable_name": "seals", "ack_policy": "explicit", "filter_subject": "ev.*.run.*.*.s.cancel_requested",
    }});
    let forgetful =
        json!({"name": "EVENTS", "subjects": ["ev.>"], "max_age": 1_000_000_000}).to_string();
    let mut attempts = vec![
        event("ev.default.run.r.r.s.launched.any.root"),
        event("ev.default.run.r.r.s.requested"),
        event("ev.default.run.r.r.s.reused"),
        event("ev.default.run.r.r.s.cancel_requested"),
        event("ev.default.run.r.r.s.admission_returned"),
        event("ev.default.run.r.r.s.sealed"),
        event("ev.default.capsule.probe.registered"),
        event("ev.default.file.f.uploaded"),
        event("ev.default.token.t.issued"),
        event("ev.default.token.t.revoked"),
        event("ev.default.placement.any.queue_opened"),
        event("ev.default.archive.log.archived"),
        event("ev.default.archive.log.released"),
        event("ev.default.retention.r.hold_placed"),
        event("ev.default.retention.all.policy_set"),
        event("ev.default.artifact.0.deleted"),
        event("ev.default.rule.all.set"),
        event("ev.default.rule.all.removed"),
        event("ev.default.admission.runs.granted"),
        event("ev.default.deadletter.r.requeued"),
        event("ev.default.deadletter.r.purged"),
        event("ev.default.node.n.drained"),
        event("ev.default.node.n.resumed"),
        event("$KV.PRESENCE.gateway.g"),
        ("$JS.API.STREAM.CREATE.EVENTS", String::new()),
        ("$JS.API.STREAM.UPDATE.EVENTS", forgetful),
        ("$JS.API.STREAM.UPDATE.WORK", String::new()),
        ("$JS.API.CONSUMER.DELETE.WORK.any-root", String::new()),
        ("$JS.API.STREAM.PURGE.FILES", String::new()),
        (
            "$JS.API.CONSUMER.CREATE.WORK.any-root.ev.*.run.*.*.s.launched.any.root",
            slow.to_string(),
        ),
        ("$JS.API.CONSUMER.CREATE.EVENTS.x.ev.>", all.to_string()),
        (
            "$JS.API.CONSUMER.CREATE.EVENTS.seals.ev.*.run.*.*.s.cancel_requested",
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

/// Events and requests that only a node may publish.
fn forbidden_to_gateways() -> Vec<Attempt> {
    let next = json!({"batch": 1, "no_wait": true}).to_string();
    let mut attempts = vec![
        event("ev.default.run.r.r.s.delivered"),
        event("ev.default.run.r.r.s.attempt_lost"),
        event("ev.default.run.r.r.s.attempt_refused"),
        event("ev.default.run.r.r.s.attempt_failed"),
        event("ev.default.run.r.r.n.capsule_started"),
        event("ev.default.run.r.r.n.egress_closed"),
        event("ev.default.run.r.r.m.reserved"),
        event("ev.default.run.r.r.m.settled"),
        event("log.default.r.r.1"),
        event("$KV.PRESENCE.node.n"),
        event("offer.n"),
        event("peer.ask"),
        event("peer.n"),
        ("$JS.API.CONSUMER.MSG.NEXT.WORK.any-root", next),
        ("$JS.ACK.WORK.any-root.1.1.1.1.0", "+ACK".to_owned()),
    ];
    attempts.extend(of_admins());
    attempts
}

/// Each attempt is rejected by name, and so are subscriptions to the subjects of `others`; the state is unchanged.
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
    eprintln!("{part}: {refused} forbidden operations are rejected");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_is_denied_subjects_of_gateways() {
    let server = quiet().await;
    all_is_refused(&server, "node", &forbidden_to_nodes(), "gateway");
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_is_denied_subjects_of_nodes() {
    let server = quiet().await;
    all_is_refused(&server, "gateway", &forbidden_to_gateways(), "node");
}

/// A server sends an answer to any reply subject, even if the requester may not publish there.
#[tokio::test(flavor = "multi_thread")]
async fn broker_answers_never_reach_forbidden_subjects() {
    let server = quiet().await;
    let artifact = b"{\"forged\":true}";
    let mine = |part: &str| match part {
        "node" => "ev.default.run.r.r.n.capsule_started",
        _ => "ev.default.run.r.r.s.requested",
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
            "ev.default.run.x.x.s.launched.any.root",
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
        // Control: the answer arrives at an allowed reply subject.
        let own = connection.request("$JS.API.DIRECT.GET.FILES.obj.artifacts.m.Zm9yZ2Vk", b"");
        assert!(own.expect("an answer").bytes.ends_with(artifact));
        assert_eq!(state(&server), before, "{part}");
        assert!(listener.hear().messages.is_empty(), "{part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_cannot_purge_presence_with_a_rollup_header() {
    let server = quiet().await;
    let mut admin = by_hand(&server, "admin");
    let stored = admin.request("$KV.PRESENCE.gateway.g", b"{}");
    assert!(stored.expect("an answer").json()["seq"].is_u64());
    let before = state(&server);
    let mut node = by_hand(&server, "node");
    for everything in ["all", "sub"] {
        let header = format!("Nats-Rollup: {everything}");
        node.publish_with_header("$KV.PRESENCE.node.n", &header, b"{}");
        assert!(node.hear().complaints.is_empty());
    }
    assert_eq!(state(&server), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn host_with_its_own_user_has_a_private_inbox() {
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
    for subject in ["offer.n", "peer.ask", "peer.n"] {
        tokyo.subscribe(subject);
        let _ = tokyo.hear();
        let nobody = berlin.request(subject, b"").expect("an answer");
        let text = String::from_utf8_lossy(&nobody.bytes);
        assert!(text.contains("503"), "{text}");
        assert!(tokyo.hear().messages.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_users_and_system_requests_are_rejected() {
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
async fn node_cannot_announce_a_gateway_under_its_own_key() {
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

/// Calls `callee`, prints a line, and returns as much as it received.
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
