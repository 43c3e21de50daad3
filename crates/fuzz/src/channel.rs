//! A run's private channel: any bytes of a capsule on the connection, and any answer of a gateway.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aod_api::PROBLEM_MEDIA_TYPE;
use aod_api::problem::Problem;
use aod_node::fuzzing::{Desk, channel};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::doubles::{AnswersOnce, Forgetful, OneGateway, Silent};
use crate::problems::check_problem;
use crate::{parts, run};

/// Bytes in transfer, as in the buffer of a socket.
const BUFFER_BYTES: usize = 256 * 1024;

/// A client is silent for this time and then closes: longer than any answer takes, including the five minutes of a
/// poll.
const SILENCE: Duration = Duration::from_secs(3_600);

/// Maximum time from the client's end to the connection's end.
const END: Duration = Duration::from_secs(600);

/// The bytes of a capsule, the status of the gateway's answer, and its body.
pub fn check(bytes: &[u8]) {
    let [written, status, answer] = parts(bytes);
    let status = str::from_utf8(status).ok();
    let status = status.and_then(|text| text.parse::<u16>().ok());
    let status = status.filter(|status| (200..600).contains(status));
    let answers = run(converse(
        written,
        AnswersOnce::new(status.unwrap_or(200), answer),
    ));
    if !answers.is_empty() {
        check_first_answer(&answers, serde_json::from_slice(answer).ok().as_ref());
    }
}

/// All bytes that the node writes to a capsule that writes `written`.
async fn converse(written: &[u8], gateways: AnswersOnce) -> Vec<u8> {
    let (mut client, server) = tokio::io::duplex(BUFFER_BYTES);
    let served = tokio::spawn(channel(server, desk(gateways)));
    // Bytes beyond the limit are not read: the node has rejected the request and closes.
    let _ = tokio::time::timeout(SILENCE, client.write_all(written)).await;
    let mut answers = Vec::new();
    let _ = tokio::time::timeout(SILENCE, client.read_to_end(&mut answers)).await;
    let _ = client.shutdown().await;
    let rest = tokio::time::timeout(END, client.read_to_end(&mut answers)).await;
    assert!(rest.is_ok(), "the connection outlives its client");
    served.await.expect("serving does not panic");
    answers
}

fn desk(gateways: AnswersOnce) -> Desk {
    Desk {
        presence: Arc::new(OneGateway),
        gateways: Arc::new(gateways),
        artifacts: Arc::new(Forgetful),
        log: Arc::new(Silent),
        outgoing: outgoing(),
        incoming: PathBuf::from("/nonexistent"),
        bytes_max: 64,
    }
}

/// Files of the capsule, stored in the repository.
fn outgoing() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/outgoing")
}

/// The answer is HTTP, and a rejection with a body gives the reason: as a problem of this node, or as `of_gateway`,
/// which may be of another version and is passed on.
fn check_first_answer(answers: &[u8], of_gateway: Option<&Problem>) {
    assert!(
        answers.starts_with(b"HTTP/1."),
        "{}",
        answers.escape_ascii()
    );
    let text = String::from_utf8_lossy(answers);
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status: u16 = head[9..12].parse().expect("a status");
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
    };
    let length: usize = header("content-length")
        .unwrap_or("0")
        .parse()
        .expect("a length");
    // Rejections by the HTTP server below the routes have no body, and neither have answers to HEAD, which another
    // answer may follow.
    if status < 400 || length == 0 || body.is_empty() || body.starts_with("HTTP/1.") {
        return;
    }
    assert_eq!(header("content-type"), Some(PROBLEM_MEDIA_TYPE), "{text}");
    let problem = body.get(..length).expect("a whole body");
    let problem: Problem = serde_json::from_str(problem).expect("a problem");
    if of_gateway.is_none_or(|sent| sent.code != problem.code) {
        check_problem(&problem);
    }
    assert!(!problem.instance.is_empty() && !problem.request_id.is_empty());
}
