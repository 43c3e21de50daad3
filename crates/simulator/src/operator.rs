//! Whoever looks after dead letters: takes one off the list, or has it launched anew and waits for that.

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

/// How long one request waits for a result, in seconds.
const WAIT_SECONDS: u64 = 20;

/// How long whoever got no answer rests.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Tries until the cluster counts as dead: nothing simulated is away for so long.
const TRIES_MAX: u64 = 200;

/// Does something about the dead letter that `run` is, the answer to `plan`.
pub(crate) async fn attend(cluster: &Cluster, plan: &Plan, run: &Value) {
    let world = &cluster.world;
    let operator = Operator {
        route: cluster.route(&format!("operator-{}", plan.number), &Switch::new()),
        path: format!("/v1/deadletters/{}", run.as_str().unwrap_or_default()),
    };
    // What was purged may still be requeued.
    let (is_purged, is_requeued) = [(true, false), (true, true), (false, true)][choice(world)];
    if is_purged {
        let purge = format!("{}/purge", operator.path);
        let purged = operator.insist("POST", &purge).await;
        world.count("purged");
        if purged["dead_letter"] != "purged" {
            world.violation(format!("{run} is not purged: {purged}"));
        }
    }
    if !is_requeued {
        return;
    }
    let requeue = format!("{}/requeue", operator.path);
    let anew = operator.insist("POST", &requeue).await;
    let again = operator.insist("POST", &requeue).await;
    world.count("requeued");
    if anew["id"] != again["id"] || anew["requeued_from"] != *run {
        world.violation(format!("{run} is requeued as {anew}, then as {again}"));
    }
    let shown = operator.insist("GET", &operator.path).await;
    if shown["requeued_as"] != anew["id"] || shown["attempts"].as_array().is_none() {
        world.violation(format!("{run} was requeued, and is {shown}"));
    }
    let result = operator.result(&anew["id"]).await;
    let is_right = result["success"] == true && result["output"]["sum"].as_u64() == plan.answer();
    if !is_right && !cluster.broker.has_given_up(anew["id"].as_str()) {
        world.violation(format!("{run} was requeued, and comes to {result}"));
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
    /// The result of `run`, whenever that is there.
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

    /// The answer of whichever gateway gives one.
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
            let text = format!("{} was refused: {status} {answer}", self.route.who);
            self.route.world.violation(text);
        }
        (!status.is_server_error()).then_some(answer)
    }
}
