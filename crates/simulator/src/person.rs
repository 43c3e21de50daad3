//! A user that requests runs from either gateway, and retries until there is an answer.

use std::sync::Arc;
use std::time::Duration;

use aod_ports::gateways::GatewayTransport as _;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::Request;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::capsule;
use crate::cluster::{Cluster, GATEWAYS};
use crate::network::Route;
use crate::operator;
use crate::plan::{Plan, policies};
use crate::tenants;

/// Maximum wait of one request for a result, in seconds.
const WAIT_SECONDS: u64 = 20;

/// Time limit of a request: its wait, and the time that a gateway needs in addition.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(WAIT_SECONDS + 15);

/// Pause after a request without an answer.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Tries until the cluster counts as dead: no fault lasts that long.
const TRIES_MAX: u64 = 200;

/// One root in this number is cancelled by its user.
const CANCELLED_ONE_IN: u64 = 6;

/// Maximum delay before a cancel, in milliseconds.
const THINKING_MILLISECONDS_MAX: u64 = 6_000;

/// One root in this number is rerun after it has succeeded.
const RERUN_ONE_IN: u64 = 8;

/// Maximum latency of a recorded answer without faults.
const RECORDED_WITHIN: Duration = Duration::from_secs(1);

/// Requests `plan`, compares the answer and returns it.
pub(crate) async fn ask(cluster: Arc<Cluster>, plan: Plan) -> Option<Value> {
    let who = format!("person-{}", plan.number);
    let route = cluster.route_of(&who, plan.number);
    let has_second_thoughts = cluster.world.strikes("cancelled", CANCELLED_ONE_IN);
    if has_second_thoughts {
        tokio::spawn(cancel(Arc::clone(&cluster), route.clone(), plan.clone()));
    }
    for attempt in 0..TRIES_MAX {
        let url = url_of(attempt, &plan);
        let prefer = format!("wait={WAIT_SECONDS}");
        let asked = post(&route, &url, &plan, &prefer);
        match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Some(view)) if view["ended_at"].is_string() => {
                compare(&cluster, &plan, &view, has_second_thoughts);
                tenants::read_across(&cluster, &plan, &view).await;
                if view["error"]["code"] == "dead_letter" {
                    operator::attend(&cluster, &plan, &view["id"]).await;
                }
                if view["state"] == "succeeded" && cluster.world.strikes("rerun", RERUN_ONE_IN) {
                    rerun(&cluster, &route, &plan, &view).await;
                }
                return Some(view);
            }
            _ => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
    cluster
        .world
        .violation(format!("{who} got no answer after {TRIES_MAX} tries"));
    None
}

/// Reruns the run of `view` as a new tree: the result is equal.
async fn rerun(cluster: &Cluster, route: &Route, plan: &Plan, view: &Value) {
    let id = view["id"].as_str().unwrap_or_default();
    let key = format!("rerun-{}", plan.number);
    let prefer = format!("wait={WAIT_SECONDS}");
    let body = json!({});
    for attempt in 0..TRIES_MAX {
        let url = format!("{}/{id}/rerun", url_of(attempt, plan));
        let asked = send(route, &url, &body, &key, &prefer);
        match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Some(view)) if view["ended_at"].is_string() => {
                return compare(cluster, plan, &view, false);
            }
            _ => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
    let text = format!("{} got no rerun after {TRIES_MAX} tries", route.who);
    cluster.world.violation(text);
}

/// Repeats the request for `plan` at another gateway: it returns the recorded answer immediately.
pub(crate) async fn ask_again(cluster: &Cluster, plan: &Plan, answer: &Value) {
    let route = cluster.route_of(&format!("again-{}", plan.number), plan.number);
    let prefer = format!("wait={WAIT_SECONDS}");
    for _ in 0..TRIES_MAX {
        let began = Instant::now();
        // A gateway that is still starting does not answer.
        let Some(mut again) = post(&route, &url_of(1, plan), plan, &prefer).await else {
            tokio::time::sleep(RETRY_PAUSE).await;
            continue;
        };
        cluster.world.count("request repeated");
        // The last event of the run may be its seal by now.
        again["sequence"] = answer["sequence"].clone();
        if again != *answer || began.elapsed() > RECORDED_WITHIN {
            let elapsed = began.elapsed();
            let text = format!("{again} after {elapsed:?} instead of {answer}");
            cluster.world.violation(text);
        }
        return;
    }
    let text = format!("{} got no answer after {TRIES_MAX} tries", route.who);
    cluster.world.violation(text);
}

/// The runs at one gateway or the other.
fn url_of(attempt: u64, plan: &Plan) -> String {
    let gateway = (attempt + plan.number) % GATEWAYS as u64;
    format!("http://gateway-{gateway}/v1/runs")
}

/// Repeats the request after a delay, and cancels the run.
async fn cancel(cluster: Arc<Cluster>, route: Route, plan: Plan) {
    let milliseconds = cluster.world.below(THINKING_MILLISECONDS_MAX);
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    for attempt in 0..TRIES_MAX {
        let url = url_of(attempt, &plan);
        if let Some(view) = post(&route, &url, &plan, "respond-async").await {
            let id = view["id"].as_str().unwrap_or_default();
            let request = request(&route, "POST", &format!("{url}/{id}/cancel"))
                .body(Bytes::new())
                .expect("a request");
            // That an ended run cannot be cancelled is an answer too.
            if route
                .send(request)
                .await
                .is_ok_and(|response| !response.status().is_server_error())
            {
                return;
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// The run as the gateway returns it, after its end or after the wait.
async fn post(route: &Route, url: &str, plan: &Plan, prefer: &str) -> Option<Value> {
    let arguments = plan.arguments();
    let (retries, limits) = policies(&arguments);
    let mut body = json!({
        "capsule": capsule::NAME, "arguments": arguments, "retries": retries, "limits": limits,
    });
    if let (Value::Object(body), Value::Object(required)) = (&mut body, plan.requirements()) {
        body.extend(required);
    }
    let key = format!("plan-{}", plan.number);
    send(route, url, &body, &key, prefer).await
}

/// A request of the user of `route`.
pub(crate) fn request(route: &Route, method: &str, url: &str) -> http::request::Builder {
    let request = Request::builder().method(method).uri(url);
    let request = request.header("host", "127.0.0.1");
    match &route.bearer {
        Some(bearer) => request.header("authorization", format!("Bearer {bearer}")),
        None => request,
    }
}

/// The answer of a gateway that accepts `body`.
async fn send(route: &Route, url: &str, body: &Value, key: &str, prefer: &str) -> Option<Value> {
    let request = request(route, "POST", url)
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .header("prefer", prefer)
        .body(Bytes::from(body.to_string()))
        .ok()?;
    let response = route.send(request).await.ok()?;
    let status = response.status();
    let pieces: Vec<Bytes> = response.into_body().try_collect().await.ok()?;
    let answer = serde_json::from_slice(&pieces.concat()).ok()?;
    if status.is_client_error() {
        let text = format!("{} was rejected: {status} {answer}", route.who);
        route.world.violation(text);
    }
    status.is_success().then_some(answer)
}

pub(crate) fn compare(cluster: &Cluster, plan: &Plan, view: &Value, may_be_cancelled: bool) {
    let found = view["result"]["output"]["sum"].as_u64();
    let world = &cluster.world;
    world.step("answer", &format!("{} {}", view["id"], view["state"]));
    if view["state"] == "succeeded" && found.is_some() && found == plan.answer() {
        return;
    }
    // Its callees may be cancelled first, and it may fail for that.
    if view["state"] != "succeeded" && may_be_cancelled {
        return;
    }
    // A run that loses all attempts is dead-lettered, a run that waits too long for a node times out, and their
    // callers fail with them.
    let is_in_vain = ["failed", "timed_out"]
        .iter()
        .any(|state| view["state"] == *state);
    if is_in_vain && cluster.broker.has_platform_failure(view["root"].as_str()) {
        world.count("failed by the platform");
        return;
    }
    world.violation(format!(
        "{} has {} instead of {:?}: {}",
        view["id"],
        view["result"]["output"],
        plan.answer(),
        view["error"]
    ));
}
