//! Bodies of requests to run a capsule: AOD's and those of agent-on-demand, at a gateway and on a run's channel, as
//! JSON and as multipart.

use aod_api::compatibility::Execute;
use aod_api::internal::{CallLine, CallRequest};
use aod_api::problem::Problem;
use aod_domain::run::{FileEntry, RETRIES_MAX};
use aod_gateway::fuzzing as gateway;
use aod_node::fuzzing as node;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, header};
use bytes::Bytes;
use futures::stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::doubles::Forgetful;
use crate::problems::check_problem;
use crate::run;

/// Maximum bytes of an uploaded file.
const UPLOAD_BYTES_MAX: u64 = 1024;

/// A body, parsed in every way; one that begins with `--` is multipart.
pub fn check(bytes: &[u8]) {
    if bytes.starts_with(b"--") {
        return run(check_multipart(bytes));
    }
    run(check_create_run(bytes));
    check_channel(bytes);
    check_compatibility(bytes);
    check_round_trip::<CallRequest>(bytes);
    check_round_trip::<CallLine>(bytes);
}

/// An accepted request is accepted again in its expanded form.
async fn check_create_run(bytes: &[u8]) {
    let headers = HeaderMap::new();
    match gateway::create_run(&Forgetful, &headers, bytes).await {
        Ok(request) => {
            assert!(!request.capsule.is_empty());
            let text = serde_json::to_vec(&request).expect("JSON");
            let again = gateway::create_run(&Forgetful, &headers, &text).await;
            assert_eq!(again, Ok(request));
        }
        Err(problem) => check_problem(&problem),
    }
}

fn check_channel(bytes: &[u8]) {
    let headers = HeaderMap::new();
    match node::handoff(bytes, &headers) {
        Ok(handoff) => {
            assert!(!handoff.target.trim().is_empty());
            assert!(handoff.timeout_seconds != Some(0));
            let retries = handoff.retries;
            assert!(retries.capsule <= RETRIES_MAX && retries.time <= RETRIES_MAX);
            assert!(handoff.limits.are_possible());
            let text = json!({
                "target": handoff.target,
                "args": handoff.arguments,
                "timeout_seconds": handoff.timeout_seconds,
                "retries": {"capsule": retries.capsule, "time": retries.time},
                "limits": handoff.limits,
                "pool": handoff.pool,
            });
            let again = node::handoff(text.to_string().as_bytes(), &headers);
            assert_eq!(again, Ok(handoff));
        }
        Err(problem) => check_problem(&problem),
    }
    match node::execute(bytes, &headers) {
        Ok(execute) => assert!(!execute.target.trim().is_empty()),
        Err(problem) => {
            assert!(matches!(problem.status, 413 | 422), "{problem:?}");
            check_problem(&problem);
        }
    }
}

/// agent-on-demand clients receive 422 for a malformed body, and no other status.
fn check_compatibility(bytes: &[u8]) {
    match gateway::execute(bytes) {
        Ok(execute) => {
            let text = serde_json::to_vec(&execute).expect("JSON");
            assert_eq!(gateway::execute(&text).as_ref(), Ok(&execute));
            let read: Execute = serde_json::from_slice(&text).expect("the documented shape");
            assert_eq!(read, execute);
        }
        Err(problem) => {
            assert_eq!(problem.status, 422);
            check_problem(&problem);
        }
    }
    if let Err(problem) = gateway::handoff(bytes) {
        assert_eq!(problem.status, 422);
        check_problem(&problem);
    }
}

fn check_round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<T>(bytes) {
        let text = serde_json::to_vec(&value).expect("JSON");
        assert_eq!(serde_json::from_slice::<T>(&text).ok(), Some(value));
    }
}

/// The first line is the boundary; the bytes arrive whole, and split in two.
async fn check_multipart(bytes: &[u8]) {
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next();
    let boundary = line.unwrap_or_default().get(2..).unwrap_or_default();
    let media_type = [b"multipart/form-data; boundary=", boundary].concat();
    let Ok(media_type) = HeaderValue::from_bytes(&media_type) else {
        return;
    };
    let whole = receive(&media_type, &[bytes]).await;
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    let cut = receive(&media_type, &[head, tail]).await;
    assert_eq!(whole.is_ok(), cut.is_ok());
    match whole {
        Ok((request, files)) => {
            assert_eq!(cut.ok().as_ref(), Some(&(request.clone(), files.clone())));
            let total: u64 = files.iter().map(|file| file.size_bytes).sum();
            assert!(total + request.len() as u64 <= bytes.len() as u64);
            assert!(files.iter().all(|file| file.size_bytes <= UPLOAD_BYTES_MAX));
            check_create_run(&request).await;
        }
        Err(problem) => check_problem(&problem),
    }
}

async fn receive(
    media_type: &HeaderValue,
    pieces: &[&[u8]],
) -> Result<(Bytes, Vec<FileEntry>), Box<Problem>> {
    let pieces: Vec<_> = pieces
        .iter()
        .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
        .collect();
    let mut request = Request::new(Body::from_stream(stream::iter(pieces)));
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, media_type.clone());
    gateway::multipart(&Forgetful, UPLOAD_BYTES_MAX, request).await
}
