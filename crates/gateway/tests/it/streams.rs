//! Streams of events and logs: clients resume them without gaps or duplicates.

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

/// Reads events until the stream ends, at most `count`.
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
    assert_eq!(first[0].kind, "dev.aod.run.launched.v1");
    let _node = ScriptedNode::echo(&cluster).await;
    let rest = read(&other, &path, &first[0].id, usize::MAX).await;
    let kinds: Vec<_> = rest.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(
        kinds,
        ["dev.aod.run.leased.v1", "dev.aod.run.ended.v1"],
        "the stream ends with the result"
    );
    assert_eq!(
        rest[0].data["previous"], first[0].data["hash"],
        "they are chained"
    );
    // After the end, the stream contains everything, the rest, or nothing.
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
        step: None,
        output: Output::Stdout,
        text: format!("line {number}"),
    }
}

/// A capsule that writes 5 lines, waits for its release, and writes the others; all `count` lines become an artifact.
async fn talkative(cluster: &Cluster, count: u64, is_let_go: Arc<AtomicBool>) -> ScriptedNode {
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
            let lines: Vec<LogLine> = (1..=count).map(line).collect();
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
    let _node = talkative(&cluster, 10, Arc::clone(&is_let_go)).await;
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

/// The numbers in `field` of the items of each page under `path`, from the first page on.
async fn pages(gateway: &Client, path: &str, field: &str, query: &str) -> Vec<Vec<u64>> {
    let mut pages = Vec::new();
    let mut after = query.to_owned();
    loop {
        let page = gateway.get(&format!("{path}?{after}")).await.expect(200);
        let items = page["items"].as_array().unwrap();
        pages.push(
            items
                .iter()
                .map(|item| item[field].as_u64().unwrap())
                .collect(),
        );
        let next = match &page["next"] {
            Value::Null => return pages,
            Value::String(next) => next.clone(),
            next => next.to_string(),
        };
        after = format!("after={next}{query}");
    }
}

#[tokio::test]
async fn pages_of_a_log_contain_each_line_once_live_and_afterwards() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let is_let_go = Arc::new(AtomicBool::new(false));
    let _node = talkative(&cluster, 20_002, Arc::clone(&is_let_go)).await;
    let id = gateway.start_run("echo", json!({})).await;
    let path = format!("/v1/runs/{id}/logs");
    gateway
        .until(&path, |page| page["items"].as_array().unwrap().len() == 5)
        .await;
    let lengths = |pages: &[Vec<u64>]| pages.iter().map(Vec::len).collect::<Vec<_>>();
    let live = pages(&gateway, &path, "number", "&limit=2").await;
    assert_eq!(live, [vec![1, 2], vec![3, 4], vec![5]]);
    is_let_go.store(true, Ordering::SeqCst);
    gateway
        .until(&path, |page| page["is_live"] == json!(false))
        .await;
    let stored = pages(&gateway, &path, "number", "").await;
    assert_eq!(lengths(&stored), [10_000, 10_000, 2]);
    assert!(stored.concat().into_iter().eq(1..=20_002));
    let stored = pages(&gateway, &path, "number", "&limit=6668").await;
    assert_eq!(lengths(&stored), [6_668, 6_668, 6_666]);
    gateway.get(&format!("{path}?after=one")).await.expect(400);
}

#[tokio::test]
async fn pages_of_events_contain_each_event_once() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let _node = ScriptedNode::echo(&cluster).await;
    let id = gateway.start_run("echo", json!({})).await;
    let path = format!("/v1/runs/{id}/events");
    let stream = read(&gateway, &path, "", usize::MAX).await;
    let sequences: Vec<u64> = stream
        .iter()
        .map(|event| event.id.parse().unwrap())
        .collect();
    for limit in [1, 2, 3] {
        let paged = pages(&gateway, &path, "sequence", &format!("&limit={limit}")).await;
        let full = paged.iter().filter(|page| page.len() == limit).count();
        assert_eq!((paged.len(), full), (3_usize.div_ceil(limit), 3 / limit));
        assert_eq!(paged.concat(), sequences);
    }
    gateway.get(&format!("{path}?after=one")).await.expect(400);
}
