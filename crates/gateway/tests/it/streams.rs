//! Events and logs as they come: resumed without gap or repeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aod_domain::run::{Ended, LogsSummary};
use aod_ports::clock::{Clock as _, SystemClock};
use aod_ports::log_stream::{LogLine, Output};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::harness::{Client, Cluster, PATIENCE};
use crate::node::{ScriptedNode, Taken};

/// One server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

/// Reads events until the stream ends or `count` are there.
pub(crate) async fn read(gateway: &Client, path: &str, after: &str, count: usize) -> Vec<Sent> {
    let request = gateway
        .request("GET", path)
        .header("accept", "text/event-stream");
    let response = request.header("last-event-id", after).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let mut bytes = response.bytes_stream();
    let (mut text, mut events) = (String::new(), Vec::new());
    while events.len() < count {
        let Some(piece) = tokio::time::timeout(PATIENCE, bytes.next()).await.unwrap() else {
            break;
        };
        text.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
        while let Some(end) = text.find("\n\n") {
            let block: String = text.drain(..end + 2).collect();
            events.extend(parse(&block));
        }
    }
    events
}

fn parse(block: &str) -> Option<Sent> {
    let field = |name: &str| {
        let mut lines = block.lines();
        lines
            .find_map(|line| line.strip_prefix(name))
            .map(|text| text.trim_start().to_owned())
    };
    let data = serde_json::from_str(&field("data:")?).unwrap();
    Some(Sent {
        id: field("id:").unwrap_or_default(),
        kind: field("event:").unwrap_or_default(),
        data,
    })
}

#[tokio::test]
async fn events_are_resumed_on_another_gateway() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let (one, other) = (cluster.gateway("one").await, cluster.gateway("other").await);
    let id = one.start_run("echo", json!({})).await;
    let path = format!("/v1/runs/{id}/events");
    let first = read(&one, &path, "", 1).await;
    assert_eq!(first[0].kind, "dev.aod.run.launch.v1");
    let _node = ScriptedNode::echo(&cluster).await;
    let rest = read(&other, &path, &first[0].id, usize::MAX).await;
    let kinds: Vec<_> = rest.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(
        kinds,
        ["dev.aod.run.lease.v1", "dev.aod.run.result.v1"],
        "the stream ends with the result"
    );
    assert_eq!(
        rest[0].data["previous"], first[0].data["hash"],
        "they are chained"
    );
    // Over, and asked for again: everything, the rest, and nothing.
    assert_eq!(read(&one, &path, "0", usize::MAX).await.len(), 3);
    assert_eq!(read(&one, &path, &rest[0].id, usize::MAX).await, rest[1..]);
    assert_eq!(read(&one, &path, &rest[1].id, usize::MAX).await, []);
    let page = one.get(&path).await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 3);
    assert_eq!(page["items"][2], rest[1].data);
}

fn line(number: u64) -> LogLine {
    LogLine {
        attempt: 1,
        number,
        at: SystemClock.now(),
        output: Output::Stdout,
        text: format!("line {number}"),
    }
}

/// A capsule that writes 5 lines, waits to be let go, writes 5 more, and keeps all as an artifact.
async fn talkative(cluster: &Cluster, is_let_go: Arc<AtomicBool>) -> ScriptedNode {
    let (logs, artifacts) = (
        Arc::clone(&cluster.ports.logs),
        Arc::clone(&cluster.ports.artifacts),
    );
    ScriptedNode::start(cluster, move |taken: Taken| {
        let (logs, artifacts, is_let_go) = (
            Arc::clone(&logs),
            Arc::clone(&artifacts),
            Arc::clone(&is_let_go),
        );
        async move {
            let lines: Vec<LogLine> = (1..=10).map(line).collect();
            logs.publish(taken.id(), &lines[..5]).await.unwrap();
            while !is_let_go.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let text: String = lines
                .iter()
                .map(|line| serde_json::to_string(line).unwrap() + "\n")
                .collect();
            let piece = futures::stream::iter([Ok(text.into_bytes().into())]).boxed();
            let stored = artifacts.put_stream(piece).await.unwrap();
            let summary = LogsSummary {
                digest: stored.digest,
                size_bytes: stored.size_bytes,
                dropped_bytes: 0,
            };
            Ended {
                logs: Some(summary),
                ..taken.echo()
            }
        }
    })
    .await
}

#[tokio::test]
async fn logs_pass_from_the_live_stream_to_the_artifact() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let is_let_go = Arc::new(AtomicBool::new(false));
    let _node = talkative(&cluster, Arc::clone(&is_let_go)).await;
    let id = gateway.start_run("echo", json!({})).await;
    let path = format!("/v1/runs/{id}/logs");
    let live = read(&gateway, &path, "", 5).await;
    assert_eq!(live[4].data["text"], "line 5");
    let page = gateway
        .until(&path, |page| page["items"].as_array().unwrap().len() == 5)
        .await;
    assert_eq!(page["is_live"], true);
    let path_again = path.clone();
    let reading = tokio::spawn(async move {
        let rest = read(&gateway, &path_again, "1.3", usize::MAX).await;
        (gateway, rest)
    });
    is_let_go.store(true, Ordering::SeqCst);
    let (gateway, rest) = reading.await.unwrap();
    let ids: Vec<_> = rest.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids, ["1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", ""]);
    assert_eq!(rest[7].kind, "end");
    let page = gateway.get(&path).await.expect(200);
    assert_eq!(
        (page["items"].as_array().unwrap().len(), &page["is_live"]),
        (10, &json!(false))
    );
}
