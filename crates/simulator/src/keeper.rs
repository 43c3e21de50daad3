//! Whoever looks after what is kept: lays down that nothing is, and has it collected again and again, also while
//! gateways die over it, and while recorded runs are asked for once more.

use std::time::Duration;

use aod_ports::gateways::GatewayTransport as _;
use bytes::Bytes;
use futures::TryStreamExt as _;
use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};

use crate::cluster::{Cluster, GATEWAYS, UNNAMED_SECONDS};
use crate::link::Switch;
use crate::network::Route;
use crate::person::{compare, request};
use crate::plan::Plan;

/// The longest between two collections, in milliseconds.
const PAUSE_MILLISECONDS_MAX: u64 = 10_000;

/// How much later than a collection a rerun is asked for, in milliseconds: collections take about as long.
const RERUN_LATE_MILLISECONDS_MAX: u64 = 1_000;

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How long whoever got no answer rests.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Tries until the cluster counts as dead: nothing simulated is away for so long.
const TRIES_MAX: usize = 200;

/// Lays down that nothing of a tree is kept once it has ended, then collects until nothing fails any more.
pub(crate) async fn keep(cluster: &Cluster) {
    let policy = json!({"logs": "0s", "files": "0s"});
    let keeper = keeper(cluster);
    insist(&keeper, "PUT", "/v1/retention/nothing", &policy).await;
    while cluster.world.is_hostile() {
        let milliseconds = cluster.world.below(PAUSE_MILLISECONDS_MAX);
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        let gateway = usize::try_from(cluster.world.below(GATEWAYS as u64)).unwrap_or_default();
        let url = format!("http://gateway-{gateway}/v1/gc");
        // A gateway may die over it, and another goes on.
        drop(ask(&keeper, "POST", &url, &json!({})).await);
    }
}

/// When everything has ended and is old: all gateways collect at once, while each of the answered runs is asked for
/// again. It comes to the same: what was collected of its callees is made once more.
pub(crate) async fn collect_and_rerun(cluster: &Cluster, answers: &[(Plan, Value)]) {
    tokio::time::sleep(Duration::from_secs(2 * UNNAMED_SECONDS)).await;
    let keeper = keeper(cluster);
    let collections = (0..GATEWAYS).map(|gateway| {
        let url = format!("http://gateway-{gateway}/v1/gc");
        let keeper = &keeper;
        async move {
            for _ in 0..TRIES_MAX {
                if let Some((StatusCode::OK, text)) = ask(keeper, "POST", &url, &json!({})).await
                    && text.contains("\"ended\"")
                {
                    return;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            let text = format!("nothing was collected at {url}");
            keeper.world.violation(text);
        }
    });
    let reruns = answers
        .iter()
        .map(|(plan, view)| rerun(cluster, plan, view));
    tokio::join!(join_all(collections), join_all(reruns));
}

/// Whoever asked asks again.
async fn rerun(cluster: &Cluster, plan: &Plan, view: &Value) {
    let world = &cluster.world;
    let route = cluster.route_of("keeper", plan.number);
    let milliseconds = world.below(RERUN_LATE_MILLISECONDS_MAX);
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    if view["state"] != "succeeded" {
        return;
    }
    let id = view["id"].as_str().unwrap_or_default();
    let url = format!(
        "http://gateway-{}/v1/runs/{id}/rerun",
        plan.number % GATEWAYS as u64
    );
    for _ in 0..TRIES_MAX {
        if let Some((status, text)) = ask(&route, "POST", &url, &json!({})).await {
            let answer: Value = serde_json::from_str(&text).unwrap_or_default();
            if status.is_success() && answer["ended_at"].is_string() {
                world.count("rerun while collected");
                return compare(cluster, plan, &answer, false);
            }
            if status.is_client_error() {
                return world.violation(format!("a rerun of {id} was refused: {answer}"));
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    world.violation(format!("a rerun of {id} came to nothing"));
}

fn keeper(cluster: &Cluster) -> Route {
    cluster.route("keeper", &Switch::new())
}

/// Asks whichever gateway answers.
async fn insist(keeper: &Route, method: &str, path: &str, body: &Value) {
    for attempt in 0..TRIES_MAX {
        let url = format!("http://gateway-{}{path}", attempt % GATEWAYS);
        if let Some((status, _)) = ask(keeper, method, &url, body).await
            && status.is_success()
        {
            return;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    keeper
        .world
        .violation(format!("no answer to {method} {path}"));
}

async fn ask(
    keeper: &Route,
    method: &str,
    url: &str,
    body: &Value,
) -> Option<(StatusCode, String)> {
    let request = request(keeper, method, url)
        .header("content-type", "application/json")
        // A rerun that is asked for again is the same one.
        .header("idempotency-key", url)
        .header("prefer", "wait=20")
        .body(Bytes::from(body.to_string()))
        .ok()?;
    let asked = async {
        let response = keeper.send(request).await.ok()?;
        let status = response.status();
        let pieces: Vec<Bytes> = response.into_body().try_collect().await.ok()?;
        Some((status, String::from_utf8(pieces.concat()).ok()?))
    };
    tokio::time::timeout(REQUEST_TIMEOUT, asked).await.ok()?
}
