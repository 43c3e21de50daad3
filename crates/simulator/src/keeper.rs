//! An operator of retention: sets a policy that keeps nothing, and runs garbage collection again and again, also while
//! gateways die during it, and while recorded runs are rerun.

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

/// Maximum pause between two collections, in milliseconds.
const PAUSE_MILLISECONDS_MAX: u64 = 10_000;

/// Maximum delay between a collection and a rerun, in milliseconds: collections take about as long.
const RERUN_LATE_MILLISECONDS_MAX: u64 = 1_000;

/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause after a request without an answer.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Tries until the cluster counts as dead: no fault lasts that long.
const TRIES_MAX: usize = 200;

/// Sets a policy that keeps nothing of ended trees, then collects until no fault is left.
pub(crate) async fn keep(cluster: &Cluster) {
    let policy = json!({"logs": "0s", "files": "0s"});
    let keeper = keeper(cluster);
    insist(&keeper, "PUT", "/v1/retention/nothing", &policy).await;
    while cluster.world.is_hostile() {
        let milliseconds = cluster.world.below(PAUSE_MILLISECONDS_MAX);
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        let gateway = usize::try_from(cluster.world.below(GATEWAYS as u64)).unwrap_or_default();
        let url = format!("http://gateway-{gateway}/v1/gc");
        // If a gateway dies during it, another one continues.
        drop(ask(&keeper, "POST", &url, &json!({})).await);
    }
}

/// After everything has ended and is old: all gateways collect concurrently while each answered run is rerun. The
/// results are equal: deleted artifacts of callees are recomputed.
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
            let text = format!("nothing was deleted at {url}");
            keeper.world.violation(text);
        }
    });
    let reruns = answers
        .iter()
        .map(|(plan, view)| rerun(cluster, plan, view));
    tokio::join!(join_all(collections), join_all(reruns));
}

/// Reruns `plan` as its user.
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
                world.count("rerun while deleted");
                return compare(cluster, plan, &answer, false);
            }
            if status.is_client_error() {
                return world.violation(format!("a rerun of {id} was rejected: {answer}"));
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    world.violation(format!("a rerun of {id} got no answer"));
}

fn keeper(cluster: &Cluster) -> Route {
    cluster.route("keeper", &Switch::new())
}

/// Sends a request to the gateways in turn until one answers.
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
        // A repeated rerun is the same one.
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
