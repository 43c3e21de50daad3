//! Peers that die, leave, lie, stay silent or stand still: the store serves instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aod_domain::subject::peer;
use aod_testkit::artifacts::bytes;
use async_nats::HeaderMap;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::join_all;
use serde_json::{Value, json};

use super::{MIB, SLACK_BYTES, Scene, check_get, node};

/// Waits until `condition` holds, 30 s at most.
async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_takes_over_from_a_fetcher_that_dies() {
    let scene = Scene::start().await;
    let content = bytes(32 << 20, 1);
    let stored = scene.put(&content).await;
    let others = join_all((2..=6).map(|number| scene.open(number))).await;
    // Requests of waiting nodes to the fetcher.
    let mut requests = scene.client().await.subscribe(peer(node(1))).await.unwrap();
    scene.meter.allow(8 * MIB);

    let host = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let fetcher = scene.ticket(1, None);
    host.spawn(async move {
        let store = fetcher.open().await;
        store.get_file(stored.digest, stored.size_bytes).await
    });
    wait_until("the fetch", || scene.meter.sent_bytes() > 8 * MIB).await;
    let gets = others
        .iter()
        .map(|node| check_get(&**node, stored, &content));
    let death = async {
        for _ in 0..others.len() {
            requests.next().await.unwrap();
        }
        let _ = requests.unsubscribe().await;
        host.shutdown_background();
        scene.meter.allow(u64::MAX);
    };
    tokio::join!(join_all(gets), death);
    let sent = scene.meter.sent_bytes();
    println!(
        "the store sent {sent} bytes for {} bytes",
        stored.size_bytes
    );
    assert!(sent <= 2 * stored.size_bytes + SLACK_BYTES);
}

/// What a peer of the test answers to its `number`th request, for the bytes from `start` to `end`.
enum Reply {
    Bytes(Bytes),
    Wait,
    Silence,
    /// It leaves the cluster.
    Leave,
}

/// A node with the lowest id, which answers questions with `standing`. Returns the number of its requests.
async fn stranger(
    scene: &Scene,
    standing: &'static str,
    reply: impl Fn(u64, usize, usize) -> Reply + Send + 'static,
) -> Arc<AtomicU64> {
    let client = scene.client().await;
    let me = node(1);
    let mut questions = client.subscribe("peer.ask").await.unwrap();
    let mut requests = client.subscribe(peer(me)).await.unwrap();
    client.flush().await.unwrap();
    let count = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (message, answer) = tokio::select! {
                Some(question) = questions.next() => {
                    let answer = json!({"node": me, "standing": standing}).to_string();
                    (question, Reply::Bytes(answer.into()))
                }
                Some(request) = requests.next() => {
                    let wanted: Value = serde_json::from_slice(&request.payload).unwrap();
                    let at = |name: &str| usize::try_from(wanted[name].as_u64().unwrap()).unwrap();
                    let number = counted.fetch_add(1, Ordering::Relaxed);
                    (request, reply(number, at("start"), at("end")))
                }
            };
            let to = message.reply.unwrap();
            match answer {
                Reply::Bytes(bytes) => client.publish(to, bytes).await.unwrap(),
                Reply::Wait => {
                    let mut headers = HeaderMap::new();
                    headers.insert("Aod-Wait-Fetched-Bytes", "5");
                    let sent = client.publish_with_headers(to, headers, Bytes::new());
                    sent.await.unwrap();
                }
                Reply::Silence => (),
                Reply::Leave => return,
            }
        }
    });
    count
}

/// A node fetches an artifact of which such a stranger claims to have something: the store serves it, once. Returns the
/// time of the fetch.
async fn check_store_serves(
    standing: &'static str,
    reply: impl Fn(&Bytes, u64, usize, usize) -> Reply + Send + 'static,
) -> Duration {
    let scene = Scene::start().await;
    let content = bytes(8 << 20, 2);
    let stored = scene.put(&content).await;
    let right = content.clone();
    let reply = move |number, start, end| reply(&right, number, start, end);
    let requests = stranger(&scene, standing, reply).await;
    let store = scene.open(2).await;
    let begun = Instant::now();
    check_get(&*store, stored, &content).await;
    let taken = begun.elapsed();
    assert!(requests.load(Ordering::Relaxed) > 0, "it was asked first");
    let sent = scene.meter.sent_bytes();
    assert!(sent >= stored.size_bytes && sent < stored.size_bytes + SLACK_BYTES);
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_of_a_peer_are_replaced_by_the_store() {
    check_store_serves("whole", |content, _, start, end| {
        let mut piece = content[start..end].to_vec();
        piece[0] ^= u8::from(start == 0);
        Reply::Bytes(piece.into())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn short_piece_of_a_peer_is_replaced_by_the_store() {
    check_store_serves("whole", |content, _, start, end| {
        Reply::Bytes(content.slice(start..end - 1))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_peer_is_replaced_by_the_store_within_seconds() {
    let taken = check_store_serves("whole", |_, _, _, _| Reply::Silence).await;
    assert!(taken < Duration::from_secs(10), "{taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_that_leaves_while_it_serves_is_replaced_by_the_store() {
    check_store_serves("whole", |content, number, start, end| match number {
        0..5 => Reply::Bytes(content.slice(start..end)),
        _ => Reply::Leave,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fetcher_without_progress_is_replaced_after_ten_seconds() {
    for standing in ["fetching", "asking"] {
        let taken = check_store_serves(standing, |_, _, _, _| Reply::Wait).await;
        assert!(taken >= Duration::from_secs(10), "{taken:?}");
    }
}
