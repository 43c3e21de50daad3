//! An operator of dead letters: purges one, or requeues it and waits for the new run.

use std::time::Duration;

use aod_ports::gateways::GatewayTransport as _;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::Request;
use serde_json::Value;

use crate::cluster::{Cluster, GATEWAYS};
use crate::link::Switch;
use crate::network::Route;
use crate::plan::Plan;
use crate::world::World;

/// Maximum wait of one request for a result, in seconds.
const WAIT_SECONDS: u64 = 20;

/// Pause after a request without an answer.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Tries until the cluster counts as dead: no fault lasts that long.
const TRIES_MAX: u64 = 200;

/// Handles the dead letter `run`, which is the answer to `plan`.
pub(crate) async fn attend(cluster: &Cluster, plan: &Plan, run: &Value) {
    let world = &cluster.world;
    let operator = Operator {
        route: cluster.route(&format!("operator-{}", plan.number), &Switch::new()),
        path: format!("/v1/deadletters/{}", run.as_str().unwrap_or_default()),
    };
    // A purged dead letter can still be requeued.
    let (is_purged, is_requeued) = [(true, false), (true, true), (false, true)][choice(world)];
    if is_purged {
        let purge = format!("{}/purge", operator.path);
        let purged = operator.insist("POST", &purge).await;
        world.count("purged");
        if purged["dead_letter"] != "purged" {
            world.violation(format!("cannot purge {run}: {purged}"));
        }
    }
    if !is_requeued {
        return;
    }
    let requeue = format!("{}/requeue", operator.path);
    let new = operator.insist("POST", &requeue).await;
    let again = operator.insist("POST", &requeue).await;
    world.count("requeued");
    if new["id"] != again["id"] || new["requeued_from"] != *run {
        world.violation(format!("{run} is requeued as {new}, then as {again}"));
    }
    let shown = operator.insist("GET", &operator.path).await;
    if shown["requeued_as"] != new["id"] || shown["attempts"].as_array().is_none() {
        world.violation(format!("{run} was requeued, but is shown as {shown}"));
    }
    let result = operator.result(&new["id"]).await;
    let is_right = result["success"] == true && result["output"]["sum"].as_u64() == plan.answer();
    if !is_right && !cluster.broker.has_platform_failure(new["id"].as_str()) {
        world.violation(format!(
            "{run} was requeued, with the wrong result {result}"
        ));
    }
}

fn choice(world: &World) -> usize {
    usize::try_from(world.below(3)).unwrap_or_default()
}

struct Operator {
    route: Route,
    path: String,
}

impl Operator {
    /// The result of `run`; waits for it.
    async fn result(&self, run: &Value) -> Value {
        let run = run.as_str().unwrap_or_default();
        let path = format!("/v1/runs/{run}/result?wait={WAIT_SECONDS}");
        for _ in 0..TRIES_MAX {
            let answer = self.insist("GET", &path).await;
            if answer["success"].is_boolean() {
                return answer;
            }
        }
        Value::Null
    }

    /// The answer of the first gateway that gives one.
    async fn insist(&self, method: &str, path: &str) -> Value {
        for attempt in 0..TRIES_MAX {
            let gateway = attempt % GATEWAYS as u64;
            let url = format!("http://gateway-{gateway}{path}");
            let asked = self.ask(method, &url);
            let patience = Duration::from_secs(WAIT_SECONDS + 15);
            if let Ok(Some(answer)) = tokio::time::timeout(patience, asked).await {
                return answer;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        let text = format!("{} got no answer to {method} {path}", self.route.who);
        self.route.world.violation(text);
        Value::Null
    }

    async fn ask(&self, method: &str, url: &str) -> Option<Value> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("host", "127.0.0.1")
            .body(Bytes::new())
            .ok()?;
        let response = self.route.send(request).await.ok()?;
        let status = response.status();
        let pieces: Vec<Bytes> = response.into_body().try_collect().await.ok()?;
        let answer = serde_json::from_slice(&pieces.concat()).ok()?;
        if status.is_client_error() {
            let text = format!("{} was rejected: {status} {answer}", self.route.who);
            self.route.world.violation(text);
        }
        (!status.is_server_error()).then_some(answer)
    }
}
