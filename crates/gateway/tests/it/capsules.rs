//! Registration of capsules from packed directories.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::run::{Ended, Work};
use aod_ports::clock::{Clock, SystemClock};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Answer, Client, Cluster, image, send};
use crate::node::{ScriptedNode, Taken};

fn package(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, text.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

fn chart(agent: &str) -> Vec<u8> {
    let schema = r#"{"input": {"type": "object"}, "output": {"type": "object"}}"#;
    package(&[
        ("Dockerfile", "FROM scratch"),
        ("schema.json", schema),
        ("agent.yaml", agent),
        ("tools.yaml", "capsules: [report]"),
    ])
}

async fn send_package(gateway: &Client, query: &str, package: Vec<u8>) -> Answer {
    let request = gateway.request("POST", &format!("/v1/capsules{query}"));
    send(
        request
            .header("content-type", "application/x-tar")
            .body(package),
    )
    .await
}

#[tokio::test]
async fn removed_capsule_cannot_be_called_and_its_runs_remain() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let (gateway, other) = (cluster.gateway("one").await, cluster.gateway("other").await);
    let _node = ScriptedNode::echo(&cluster).await;
    let request = json!({"capsule": "echo", "arguments": {"x": 1}});
    let run = gateway.run(&request).await;
    let remove = async || send(gateway.request("DELETE", "/v1/capsules/The%20echo")).await;
    assert_eq!(remove().await.status, 204);
    assert_eq!(remove().await.expect(404)["code"], "unknown_capsule");
    for gateway in [&gateway, &other] {
        gateway
            .until("/v1/capsules", |list| list["items"] == json!([]))
            .await;
    }
    let refused = gateway.post("/v1/runs", &request).await.expect(404);
    assert_eq!(refused["code"], "unknown_capsule");

    let id = run["id"].as_str().unwrap();
    let shown = gateway.get(&format!("/v1/runs/{id}")).await.expect(200);
    assert_eq!(shown["state"], "succeeded");
    let path = format!("/v1/runs/{id}/rerun");
    let rerun = gateway.post(&path, &json!({"fresh": true})).await;
    let path = format!("/v1/runs/{}", rerun.expect(202)["id"].as_str().unwrap());
    gateway
        .until(&path, |view| view["state"] == "succeeded")
        .await;
    let events = gateway.get("/v1/events?type=removed&capsule=echo").await;
    let events = events.expect(200);
    assert_eq!(events["items"][0]["data"]["requested_by"], "tester");
}

#[tokio::test]
async fn directory_is_registered_as_capsule() {
    let cluster = Cluster::start().await;
    let (gateway, other) = (cluster.gateway("one").await, cluster.gateway("other").await);
    let builds = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&builds);
    let _node = ScriptedNode::start(&cluster, move |taken: Taken| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { taken.echo() }
    })
    .await;

    let agent = "title: Chart maker\naliases: [plot]\nresources:\n  memory: 512m\n";
    let registered = send_package(&gateway, "?directory=chart", chart(agent))
        .await
        .expect(201);
    assert_eq!(registered["name"], "chart");
    assert_eq!(registered["title"], "Chart maker");
    assert_eq!(registered["handoffs"], json!(["report"]));
    assert_eq!(registered["resources"]["memory_bytes"], 512 << 20);
    assert_eq!(registered["image"], image("chart").config_digest);
    assert_eq!(registered["is_unchanged"], false);
    assert_eq!(builds.load(Ordering::SeqCst), 1);

    let again = send_package(&gateway, "?directory=chart", chart(agent))
        .await
        .expect(200);
    assert_eq!(again["is_unchanged"], true);
    assert_eq!(builds.load(Ordering::SeqCst), 1);

    let view = other
        .run(&json!({"capsule": "plot", "arguments": {"x": 1}}))
        .await;
    assert_eq!(view["capsule"], "chart");
    let shown = other.get("/v1/capsules/Chart%20maker").await.expect(200);
    assert_eq!(shown["schema"]["input"], json!({"type": "object"}));
    let listed = other.get("/v1/capsules").await.expect(200);
    assert_eq!(listed["items"][0]["name"], "chart");
    let schema = other.get("/capsules/chart/schema").await.expect(200);
    assert_eq!(schema, shown["schema"]);
    let compatibility = other.get("/capsules").await.expect(200);
    assert_eq!(
        compatibility["capsules"]["chart"]["image"],
        image("chart").config_digest
    );
}

/// The result of a build on the base image `base`.
fn built_on(taken: &Taken, base: &str) -> Ended {
    let mut built = json!(image("chart"));
    built["bases"] = json!([{"reference": "python:3", "image": base}]);
    taken.succeed(built)
}

#[tokio::test]
async fn update_of_bases_builds_the_same_directory_on_other_images() {
    let cluster = Cluster::start().await;
    let gateway = cluster.gateway("one").await;
    // The image of a build that counts exists.
    let archive = stream::iter([Ok(Bytes::from("archive"))]).boxed();
    let stored = cluster.ports.artifacts.put_stream(archive).await;
    stored.expect("it is stored");
    let builds = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&builds);
    let _node = ScriptedNode::start(&cluster, move |taken: Taken| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let work = &taken.run.launched.event.work;
        let is_update = matches!(work, Work::Build { updates_bases, .. } if *updates_bases);
        assert_eq!(is_update, number == 1);
        // Later builds have the pin of the update.
        let base = if number == 0 {
            "sha256:old"
        } else {
            "sha256:new"
        };
        async move { built_on(&taken, base) }
    })
    .await;
    let check = async |agent: &str, query: &str, base: &str, count: u32, is_known: bool| {
        let path = format!("?directory=chart{query}");
        let sent = send_package(&gateway, &path, chart(agent)).await;
        let answer = sent.expect(if is_known { 200 } else { 201 });
        assert_eq!(answer["bases"][0]["image"], base, "{agent}{query}");
        assert_eq!(builds.load(Ordering::SeqCst), count, "{agent}{query}");
    };
    let [one, two] = ["title: One\n", "title: Two\n"];
    check(one, "", "sha256:old", 1, false).await;
    check(one, "&bases=pinned", "sha256:old", 1, true).await;
    check(one, "&bases=update", "sha256:new", 2, false).await;
    check(one, "", "sha256:new", 2, true).await;
    check(two, "", "sha256:new", 3, false).await;
    // The first build of this directory used an image that is no longer pinned.
    check(one, "", "sha256:new", 4, false).await;
    // The third build counts again.
    check(two, "", "sha256:new", 4, false).await;
    send_package(&gateway, "?directory=chart&bases=newest", chart(one))
        .await
        .expect(400);
}

/// The clock of the machine, three hours ahead: longer than a build may take.
#[derive(Debug)]
struct Ahead;

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        SystemClock.now() + SignedDuration::from_hours(3)
    }

    fn since_boot(&self) -> Duration {
        SystemClock.since_boot()
    }

    fn fresh_uuid(&self) -> Uuid {
        SystemClock.fresh_uuid()
    }

    fn fresh_secret(&self) -> [u8; 32] {
        SystemClock.fresh_secret()
    }
}

/// An update of a capsule without a registered version: only a repeated request gets the earlier build.
#[tokio::test]
async fn update_without_a_registered_version_joins_no_earlier_build() {
    let mut cluster = Cluster::start().await;
    // The image of a build that counts exists.
    cluster.store(b"archive".to_vec()).await;
    let gateway = cluster.gateway("one").await;
    let builds = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&builds);
    let _node = ScriptedNode::start(&cluster, move |taken: Taken| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move { built_on(&taken, &format!("sha256:{number}")) }
    })
    .await;
    let update = async |gateway: &Client, prefer: &str| {
        let request = gateway.request("POST", "/v1/capsules?bases=update");
        let request = request
            .header("content-type", "application/x-tar")
            .header("prefer", prefer);
        send(request.body(chart("name: chart"))).await
    };
    let base = |answer: &Value| answer["bases"][0]["image"].clone();
    let remove = async || {
        let removed = send(gateway.request("DELETE", "/v1/capsules/chart")).await;
        assert_eq!(removed.status, 204);
        gateway
            .until("/v1/capsules", |list| list["items"] == json!([]))
            .await;
    };

    // The caller asks for the result of its build.
    let build = update(&gateway, "respond-async").await.expect(202);
    let path = format!("/v1/runs/{}", build["id"].as_str().unwrap());
    gateway
        .until(&path, |view| view["state"] == "succeeded")
        .await;
    let first = update(&gateway, "").await.expect(201);
    assert_eq!(
        (&first["build"], base(&first)),
        (&build["id"], json!("sha256:0"))
    );

    remove().await;
    let second = update(&gateway, "").await.expect(201);
    assert_eq!(base(&second), "sha256:1", "{second}");

    // Nobody asked for the result of the third build in time.
    remove().await;
    let build = update(&gateway, "respond-async").await.expect(202);
    let path = format!("/v1/runs/{}", build["id"].as_str().unwrap());
    gateway
        .until(&path, |view| view["state"] == "succeeded")
        .await;
    cluster.ports.clock = Arc::new(Ahead);
    let later = cluster.gateway("later").await;
    let fourth = update(&later, "").await.expect(201);
    assert_eq!(base(&fourth), "sha256:3", "{fourth}");
}

#[tokio::test]
async fn failed_build_is_reported_and_repeated_on_request() {
    let cluster = Cluster::start().await;
    let gateway = cluster.gateway("one").await;
    let builds = Arc::new(AtomicU32::new(0));
    let _node = ScriptedNode::start(&cluster, move |taken: Taken| {
        let is_first = builds.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if is_first {
                taken.fail(ErrorCode::BuildFailed)
            } else {
                taken.echo()
            }
        }
    })
    .await;
    let refused = send_package(&gateway, "", chart("name: chart"))
        .await
        .expect(422);
    assert_eq!(refused["code"], "build_failed");
    assert_eq!(
        gateway.get("/v1/capsules/chart").await.expect(404)["code"],
        "unknown_capsule"
    );
    send_package(&gateway, "", chart("name: chart"))
        .await
        .expect(201);
}

#[tokio::test]
async fn asynchronous_registration_returns_the_build() {
    let cluster = Cluster::start().await;
    let gateway = cluster.gateway("one").await;
    let request = || {
        let request = gateway
            .request("POST", "/v1/capsules")
            .header("prefer", "respond-async");
        request
            .header("content-type", "application/x-tar")
            .body(chart("name: chart"))
    };
    let build = send(request()).await.expect(202);
    assert_eq!(
        (&build["kind"], &build["state"]),
        (&json!("build"), &json!("queued"))
    );
    let again = send(request()).await.expect(202);
    assert_eq!(again["id"], build["id"]);
    let _node = ScriptedNode::echo(&cluster).await;
    let path = format!("/v1/runs/{}", build["id"].as_str().unwrap());
    gateway
        .until(&path, |view| view["state"] == "succeeded")
        .await;
    // The store does not have the image of the build: it is built again.
    let other = send(request()).await.expect(202);
    assert_ne!(other["id"], build["id"]);
    cluster.store(b"archive".to_vec()).await;
    assert_eq!(send(request()).await.expect(201)["build"], build["id"]);
}

#[tokio::test]
async fn invalid_capsule_directory_is_rejected() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let places = |problem: &Value| -> Vec<String> {
        let errors = problem["errors"].as_array().unwrap();
        errors
            .iter()
            .map(|error| error["pointer"].as_str().unwrap().to_owned())
            .collect()
    };
    let problem = send_package(&gateway, "?directory=x", package(&[("README", "")]))
        .await
        .expect(422);
    assert_eq!(problem["code"], "capsule_invalid");
    assert_eq!(places(&problem), ["/Dockerfile", "/schema.json"]);
    let problem = send_package(&gateway, "", chart("")).await.expect(422);
    assert_eq!(places(&problem), ["/agent.yaml"]);
    let problem = send_package(&gateway, "?directory=*", chart(""))
        .await
        .expect(422);
    assert_eq!(places(&problem), ["/agent.yaml"]);
    for taken in ["name: new\ntitle: The echo", "name: new\naliases: [echo]"] {
        let problem = send_package(&gateway, "", chart(taken)).await.expect(409);
        assert_eq!(problem["code"], "name_ambiguous", "{taken}");
    }
    let request = gateway.request("POST", "/v1/capsules").body("no tar");
    assert_eq!(send(request).await.expect(415)["code"], "request_malformed");
    let problem = send_package(&gateway, "?labl=x", chart("name: chart"))
        .await
        .expect(400);
    assert_eq!(places(&problem), ["?labl"]);
}
