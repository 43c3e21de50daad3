//! Capsules as functions, on the double of the container engine.
//!
//! For tests and benchmarks of everything except containers; isolates nothing.

use std::sync::Arc;

use aod_ports::clock::SystemClock;
use aod_testkit::engine::Engine;
use axum::http::HeaderMap;
use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

pub use aod_testkit::engine::{Command, Inside};

/// A runtime whose images are named like these capsules.
pub fn runtime(capsules: impl IntoIterator<Item = (String, Command)>) -> Arc<Engine> {
    Arc::new(Engine::plain(Arc::new(SystemClock), capsules))
}

/// Calls another capsule and waits: returns status and answer.
pub async fn handoff(inside: &Inside, body: &Value) -> (u16, Value) {
    let (status, _, answer) = post(inside, "/handoff", body).await;
    let answer = answer.expect("the answer comes whole");
    (
        status,
        serde_json::from_slice(&answer).expect("the answer is JSON"),
    )
}

/// Posts to the channel: returns status, headers, and the body unless it broke off.
pub async fn post(
    inside: &Inside,
    path: &str,
    body: &Value,
) -> (u16, HeaderMap, Result<Bytes, hyper::Error>) {
    let stream = UnixStream::connect(inside.spec.io.channel.join("capsule.sock"))
        .await
        .expect("the channel is open");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("the channel speaks HTTP");
    tokio::spawn(connection);
    let request = hyper::Request::post(path)
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("a request");
    let response = sender
        .send_request(request)
        .await
        .expect("the channel answers");
    let (head, body) = response.into_parts();
    let body = body.collect().await.map(Collected::to_bytes);
    (head.status.as_u16(), head.headers, body)
}
