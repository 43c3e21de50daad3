//! Calls of runs, in the form in which nodes forward them.

use std::collections::BTreeMap;
use std::sync::Arc;

use aod_domain::capsule::Handoffs;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::handoff::given_key;
use aod_domain::id::RunId;
use aod_domain::run::{ATTEMPTS_LOST_MAX, CancelRequested, Command, Run, RunError};
use aod_domain::subject::Class;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::harness::{Answer, Client, Cluster, PATIENCE, any_schema, http_client, send};
use crate::node::{ScriptedNode, Taken, lease, pull};

/// Calls `target` as the run of `taken` through the gateway at `url`, and returns the output.
pub(crate) async fn call_once(url: &str, taken: &Taken, target: &str, arguments: Value) -> Value {
    let url = format!("{url}/internal/v1/runs/{}/calls", taken.id());
    let body = json!({
        "attempt": taken.attempt,
        "target": target,
        "arguments": arguments,
        "call_key": given_key("once"),
    });
    let request = http_client().post(url).timeout(PATIENCE);
    let answer = send(request.bearer_auth(&taken.token).json(&body)).await;
    lines(&answer)[1]["ended"]["output"]["inline"].clone()
}

/// A caller that the test holds, and a gateway for its calls.
struct Caller {
    cluster: Cluster,
    gateway: Client,
    taken: Taken,
}

impl Caller {
    /// `caller` may call only `callee` and `caller`.
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        cluster
            .register(
                "caller",
                &any_schema(),
                Handoffs::Listed(vec!["The callee".into(), "caller".into()]),
            )
            .await;
        cluster
            .register("callee", &any_schema(), Handoffs::Listed(vec![]))
            .await;
        cluster
            .register("stranger", &any_schema(), Handoffs::Open)
            .await;
        let gateway = cluster.gateway("one").await;
        let id = gateway.start_run("caller", json!({})).await;
        let taken = take(&cluster, Class::Root).await;
        assert_eq!(taken.id(), id);
        Self {
            cluster,
            gateway,
            taken,
        }
    }

    fn body(&self, target: &str, arguments: &Value, key: &str) -> Value {
        json!({
            "attempt": self.taken.attempt,
            "target": target,
            "arguments": arguments,
            "call_key": given_key(key),
        })
    }

    fn request(&self, body: &Value) -> reqwest::RequestBuilder {
        let path = format!("/internal/v1/runs/{}/calls", self.taken.id());
        self.gateway
            .without_token("POST", &path)
            .bearer_auth(&self.taken.token)
            .json(body)
    }

    async fn call(&self, target: &str, arguments: Value, key: &str) -> Answer {
        send(self.request(&self.body(target, &arguments, key))).await
    }

    /// Calls `callee`, which fails with `code`.
    async fn call_and_fail(&self, key: &str, code: ErrorCode) {
        let body = self.body("callee", &json!({"k": key}), key);
        let answer = tokio::spawn(send(self.request(&body)));
        let callee = take(&self.cluster, Class::Child).await;
        let ended = Command::End(Box::new(callee.fail(code)));
        self.handle(callee.id(), &ended).await;
        let error = &lines(&answer.await.unwrap())[1]["ended"]["error"];
        assert_eq!(error["code"], code.as_str());
    }

    /// Loses the attempt and continues with the next one.
    async fn begin_next_attempt(&mut self) {
        let lose = Command::LoseAttempt {
            attempt: self.taken.attempt,
            error: RunError::new(ErrorCode::NodeLost, "as the test wants it"),
        };
        let run = self.handle(self.taken.id(), &lose).await;
        self.taken = retake(&self.cluster, run).await;
    }

    async fn handle(&self, run: RunId, command: &Command) -> Run {
        self.cluster.runs.handle(run, command, None).await.unwrap()
    }
}

/// Pulls and leases the next launch of `class`.
async fn take(cluster: &Cluster, class: Class) -> Taken {
    let delivery = pull(cluster, class).await;
    lease(&cluster.runs, &delivery).await.unwrap()
}

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn call_is_accepted_and_answered() {
    let caller = Caller::start().await;
    let _node = ScriptedNode::echo(&caller.cluster).await;
    let answer = caller.call("The callee", json!({"x": 1}), "k").await;
    let lines = lines(&answer);
    assert_eq!(lines.len(), 2);
    let id = caller.taken.id().child(&given_key("k"));
    assert_eq!(lines[0], json!({"type": "accepted", "run_id": id}));
    assert_eq!(lines[1]["ended"]["outcome"], "succeeded");
    assert_eq!(lines[1]["ended"]["output"]["inline"], json!({"x": 1}));
    let run = caller.cluster.runs.load(id).await.unwrap().unwrap();
    assert_eq!(lines[1]["hash"], run.ended().unwrap().hash.to_string());
    let launched = &run.launched.event;
    assert_eq!(launched.placement.class, Class::Child);
    assert_eq!(
        launched.parent.as_ref().unwrap().event,
        caller.taken.run.last.hash
    );
    assert!(launched.deadline <= caller.taken.run.deadline());
    let tree = caller
        .gateway
        .get(&format!("/v1/runs/{}/tree", caller.taken.id()))
        .await
        .expect(200);
    assert_eq!(tree["children"][0]["id"], id.to_string());
}

#[tokio::test]
async fn rejected_calls_have_distinct_codes() {
    let caller = Caller::start().await;
    let check = async |target: &str, arguments: Value, status: u16, code: &str| {
        let answer = caller.call(target, arguments, "k").await;
        assert_eq!(answer.expect(status)["code"], code, "{target}");
    };
    check("nobody", json!({}), 404, "unknown_capsule").await;
    check("stranger", json!({}), 403, "target_not_allowed").await;
    check("caller", json!({}), 409, "call_cycle").await;
    check(
        "callee",
        json!({"x": "a".repeat(70_000)}),
        413,
        "payload_too_large",
    )
    .await;
}

#[tokio::test]
async fn only_the_holder_of_a_run_may_call() {
    let caller = Caller::start().await;
    let body = caller.body("callee", &json!({}), "k");
    let answer = send(caller.request(&body).bearer_auth("another token")).await;
    assert_eq!(answer.status, 401);
    let mut other_attempt = body.clone();
    other_attempt["attempt"] = json!(2);
    assert_eq!(
        send(caller.request(&other_attempt)).await.expect(401)["code"],
        "unauthorized"
    );
    // The token of one run is invalid for another run.
    let other = caller.gateway.start_run("caller", json!({"n": 2})).await;
    let path = format!("/internal/v1/runs/{other}/calls");
    let request = caller
        .gateway
        .without_token("POST", &path)
        .bearer_auth(&caller.taken.token)
        .json(&body);
    assert_eq!(send(request).await.status, 401);
    // The token is invalid after the end of the run.
    let ended = Command::End(Box::new(caller.taken.echo()));
    caller
        .cluster
        .runs
        .handle(caller.taken.id(), &ended, None)
        .await
        .unwrap();
    assert_eq!(send(caller.request(&body)).await.status, 401);
}

#[tokio::test]
async fn call_with_same_key_joins_callee_on_any_gateway() {
    let caller = Caller::start().await;
    let other = caller.cluster.gateway("other").await;
    let body = caller.body("callee", &json!({"x": 1}), "k");
    let path = format!("/internal/v1/runs/{}/calls", caller.taken.id());
    let elsewhere = other
        .without_token("POST", &path)
        .bearer_auth(&caller.taken.token)
        .json(&body);
    let (one, two) = (caller.request(&body), elsewhere);
    let both = tokio::spawn(async move { tokio::join!(send(one), send(two)) });
    let callee = take(&caller.cluster, Class::Child).await;
    let ended = Command::End(Box::new(callee.echo()));
    caller
        .cluster
        .runs
        .handle(callee.id(), &ended, None)
        .await
        .unwrap();
    let (one, two) = both.await.unwrap();
    assert_eq!(lines(&one), lines(&two));
    let answer = caller.call("callee", json!({"x": 2}), "k").await;
    assert_eq!(answer.expect(409)["code"], "key_reused");
}

#[tokio::test]
async fn later_attempt_reuses_capsule_failure_and_renews_platform_failure() {
    let mut caller = Caller::start().await;
    let codes = [
        ("capsule", ErrorCode::CapsuleExit),
        ("platform", ErrorCode::NodeLost),
    ];
    for (key, code) in codes {
        caller.call_and_fail(key, code).await;
        // The same attempt repeats the call after its connection broke, and gets the recorded result.
        let again = caller.call("callee", json!({"k": key}), key).await;
        assert_eq!(lines(&again)[1]["ended"]["error"]["code"], code.as_str());
    }
    caller.begin_next_attempt().await;

    let reused = caller
        .call("callee", json!({"k": "capsule"}), "capsule")
        .await;
    assert_eq!(lines(&reused)[1]["ended"]["error"]["code"], "capsule_exit");
    let _node = ScriptedNode::echo(&caller.cluster).await;
    let renewed = lines(
        &caller
            .call("callee", json!({"k": "platform"}), "platform")
            .await,
    );
    assert_eq!(renewed[1]["ended"]["outcome"], "succeeded");
    assert_ne!(
        renewed[0]["run_id"],
        json!(caller.taken.id().child(&given_key("platform")))
    );
}

/// A cancel proceeds down a tree run by run; a run that it has not reached yet must not renew calls that it ended.
#[tokio::test]
async fn run_below_cancelled_run_renews_no_calls() {
    let mut caller = Caller::start().await;
    let root = caller.taken.id();
    let middle = tokio::spawn(send(caller.request(&caller.body(
        "caller",
        &json!({"depth": 1}),
        "m",
    ))));
    caller.taken = take(&caller.cluster, Class::Child).await;
    caller.call_and_fail("k", ErrorCode::NodeLost).await;
    caller.begin_next_attempt().await;
    let cancel = Command::Cancel(CancelRequested {
        requested_by: "operator".into(),
        reason: String::new(),
    });
    caller.handle(root, &cancel).await;
    let refused = caller.call("callee", json!({"k": "k"}), "k").await;
    let refused = refused.expect(409);
    assert_eq!(refused["code"], "cancelled");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains(&root.to_string()), "{detail}");
    middle.abort();
}

/// Leases a run that lost its attempt, as a later delivery would.
async fn retake(cluster: &Cluster, run: Run) -> Taken {
    let token = "the token of the second attempt".to_owned();
    let holder = aod_domain::run::Holder::Node {
        node: aod_domain::id::NodeId::new(uuid::Uuid::from_u128(9)),
        incarnation: aod_domain::id::IncarnationId::new(uuid::Uuid::from_u128(9)),
        work: aod_domain::run::WorkPosition {
            queue_created_ms: i64::MAX,
            sequence: 1,
            delivery: u64::from(run.attempts) + 1,
        },
        ack_subject: "none".into(),
        token_sha256: Digest::of(&token),
    };
    let run = cluster
        .runs
        .handle(
            run.id,
            &Command::Lease {
                holder,
                is_holder_gone: false,
            },
            None,
        )
        .await
        .unwrap();
    Taken {
        attempt: run.attempts,
        run,
        token,
    }
}

#[tokio::test]
async fn targets_of_a_run_are_listed_with_schemas() {
    let caller = Caller::start().await;
    let path = format!("/internal/v1/runs/{}/targets?attempt=1", caller.taken.id());
    let answer = send(
        caller
            .gateway
            .without_token("GET", &path)
            .bearer_auth(&caller.taken.token),
    )
    .await
    .expect(200);
    let names: Vec<_> = answer["targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|target| &target["name"])
        .collect();
    assert_eq!(names, ["callee", "caller"]);
    assert_eq!(answer["targets"][0]["schema"], any_schema());
}

#[tokio::test]
async fn caller_can_cancel_its_call() {
    let caller = Caller::start().await;
    let pending = tokio::spawn(send(caller.request(&caller.body(
        "callee",
        &json!({}),
        "k",
    ))));
    let id = caller.taken.id().child(&given_key("k"));
    caller
        .gateway
        .until(&format!("/v1/runs/{id}"), |view| view["state"] == "queued")
        .await;
    let path = format!("/internal/v1/runs/{}/calls/{id}/cancel", caller.taken.id());
    let body = json!({"attempt": 1, "reason": "no longer needed"});
    let request = caller
        .gateway
        .without_token("POST", &path)
        .bearer_auth(&caller.taken.token)
        .json(&body);
    assert_eq!(send(request).await.status, 204);
    let lines = lines(&pending.await.unwrap());
    assert_eq!(lines[1]["ended"]["outcome"], "cancelled");
}

/// A gateway's state of a run may be stale; it must not cancel a callee for an attempt that was replaced.
#[tokio::test]
async fn superseded_attempt_cancels_no_callee() {
    let mut caller = Caller::start().await;
    let root = caller.taken.id();
    let waiting = caller
        .gateway
        .request("GET", &format!("/v1/runs/{root}/result?wait=60"));
    let waiting = tokio::spawn(send(waiting));
    let body = caller.body("callee", &json!({}), "k");
    let pending = tokio::spawn(send(caller.request(&body)));
    let id = root.child(&given_key("k"));
    let view = format!("/v1/runs/{id}");
    caller
        .gateway
        .until(&view, |view| view["state"] == "queued")
        .await;
    for _ in 0..ATTEMPTS_LOST_MAX - 1 {
        let (token, attempt) = (caller.taken.token.clone(), caller.taken.attempt);
        caller.begin_next_attempt().await;
        let path = format!("/internal/v1/runs/{root}/calls/{id}/cancel");
        let request = caller
            .gateway
            .without_token("POST", &path)
            .bearer_auth(token)
            .json(&json!({"attempt": attempt, "reason": "no longer needed"}));
        assert_eq!(send(request).await.expect(401)["code"], "unauthorized");
    }
    let callee = caller.gateway.until(&view, |_| true).await;
    assert!(callee["cancel"].is_null(), "{callee}");
    pending.abort();
    waiting.abort();
}

/// Every level calls the next one and keeps its own call open.
#[tokio::test]
async fn call_beyond_maximum_depth_is_rejected() {
    let cluster = Cluster::start().await;
    cluster
        .register("nest", &any_schema(), Handoffs::Open)
        .await;
    let gateway = cluster.gateway("one").await;
    let (url, seen) = (gateway.url.clone(), Arc::new(Mutex::new(BTreeMap::new())));
    let deepest = Arc::clone(&seen);
    let _node = ScriptedNode::start(&cluster, move |taken: Taken| {
        let (url, seen) = (url.clone(), Arc::clone(&seen));
        async move {
            let level = taken.arguments()["level"].as_u64().unwrap();
            let body = json!({
                "attempt": taken.attempt, "target": "nest", "arguments": {"level": level + 1},
                "call_key": given_key("next"),
            });
            let path = format!("{url}/internal/v1/runs/{}/calls", taken.id());
            let request = http_client()
                .post(path)
                .bearer_auth(&taken.token)
                .json(&body);
            let answer = send(request).await;
            seen.lock().await.insert(level, answer.status);
            taken.succeed(json!({"level": level}))
        }
    })
    .await;
    let view = gateway
        .run(&json!({"capsule": "nest", "arguments": {"level": 0}}))
        .await;
    assert_eq!(view["state"], "succeeded");
    let expected: BTreeMap<u64, u16> = (0..=16)
        .map(|level| (level, if level < 16 { 200 } else { 409 }))
        .collect();
    assert_eq!(*deepest.lock().await, expected);
}
