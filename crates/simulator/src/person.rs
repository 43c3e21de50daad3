//! Whoever asks for runs: again and again, of either gateway, until there is an answer.

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

/// The longest that one request waits for a result, in seconds.
const WAIT_SECONDS: u64 = 20;

/// How long a request may take: its wait, and what a gateway needs besides.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(WAIT_SECONDS + 15);

/// How long whoever got no answer rests.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Tries until the cluster counts as dead: nothing simulated is away for so long.
const TRIES_MAX: u64 = 200;

/// One root in so many is cancelled by whoever asked for it.
const CANCELLED_ONE_IN: u64 = 6;

/// How long a person thinks before a run is cancelled, at the most, in milliseconds.
const THINKING_MILLISECONDS_MAX: u64 = 6_000;

/// One root in so many is repeated once it has succeeded.
const RERUN_ONE_IN: u64 = 8;

/// How long an answer takes that is recorded already, when nothing fails.
const RECORDED_WITHIN: Duration = Duration::from_secs(1);

/// Asks for `plan` and compares the answer, which it returns.
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
                tenants::look_across(&cluster, &plan, &view).await;
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

/// Asks for the run of `view` once more, as a tree of its own: it comes to the same.
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

/// Asks another gateway for `plan` once more: it has the recorded answer, at once.
pub(crate) async fn ask_again(cluster: &Cluster, plan: &Plan, answer: &Value) {
    let route = cluster.route_of(&format!("again-{}", plan.number), plan.number);
    let prefer = format!("wait={WAIT_SECONDS}");
    for _ in 0..TRIES_MAX {
        let began = Instant::now();
        // Nobody answers while the gateway is still being started.
        let Some(mut again) = post(&route, &url_of(1, plan), plan, &prefer).await else {
            tokio::time::sleep(RETRY_PAUSE).await;
            continue;
        };
        cluster.world.count("asked again");
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

/// The runs of one gateway or the other.
fn url_of(attempt: u64, plan: &Plan) -> String {
    let gateway = (attempt + plan.number) % GATEWAYS as u64;
    format!("http://gateway-{gateway}/v1/runs")
}

/// Asks for the same run after a while, and for its end.
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
            // A run that has ended is not cancelled any more: that is an answer, too.
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

/// The run as the gateway shows it, once it has ended or the wait is over.
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

/// A request of whoever `route` is of.
pub(crate) fn request(route: &Route, method: &str, url: &str) -> http::request::Builder {
    let request = Request::builder().method(method).uri(url);
    let request = request.header("host", "127.0.0.1");
    match &route.bearer {
        Some(bearer) => request.header("authorization", format!("Bearer {bearer}")),
        None => request,
    }
}

/// What a gateway answers that takes `body`.
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
        let text = format!("{} was refused: {status} {answer}", route.who);
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
    // Its callees may be cancelled before it is, and it may fail for that.
    if view["state"] != "succeeded" && may_be_cancelled {
        return;
    }
    // What has lost attempt after attempt is given up, what waits too long for a node ends, and those
    // who called it fail with it.
    let is_in_vain = ["failed", "timed_out"]
        .iter()
        .any(|state| view["state"] == *state);
    if is_in_vain && cluster.broker.has_given_up(view["root"].as_str()) {
        world.count("given up");
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
