//! Conformance suites of log streams and presence.

use std::ops::Range;

use aod_domain::digest::Digest;
use aod_domain::id::{GatewayId, IncarnationId, NodeId};
use aod_ports::log_stream::{LogLine, LogStream, Output};
use aod_ports::presence::{GatewayMember, Member, NodeMember, PRESENCE_SECONDS, Place, Presence};
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::time::Instant;
use uuid::Uuid;

use crate::events::{new_run, pool, soon};

/// Lines of an attempt, by number.
pub fn lines(attempt: u32, numbers: Range<u64>) -> Vec<LogLine> {
    let line = |number| LogLine {
        attempt,
        number,
        at: Timestamp::UNIX_EPOCH,
        step: None,
        output: Output::Stdout,
        text: format!("line {number}"),
    };
    numbers.map(line).collect()
}

/// A gateway, different for each number.
pub fn gateway(number: u128) -> Member {
    Member::Gateway(GatewayMember {
        gateway: GatewayId::new(Uuid::from_u128(number)),
        url: "http://127.0.0.1:1".into(),
        version: "0.1.0".into(),
    })
}

fn node(number: u128, slots: usize) -> Member {
    Member::Node(NodeMember {
        node: NodeId::new(Uuid::from_u128(number)),
        incarnation: IncarnationId::new(Uuid::from_u128(number)),
        host: "host".into(),
        version: "0.1.0".into(),
        pools: vec![pool("any")],
        slots,
        running: 0,
        waiting: 0,
        containers: 0,
        draining: false,
        place: Place::default(),
        not_ready: None,
        no_roots: None,
    })
}

/// Runs the suite of log streams through two connections to one stream.
pub async fn check_logs(logs: &dyn LogStream, elsewhere: &dyn LogStream) {
    lines_are_read_from_the_first_then_live_then_resumed(logs, elsewhere).await;
    a_line_that_is_too_long_is_refused(logs).await;
    a_childs_lines_are_not_its_parents(logs).await;
}

async fn publish(logs: &dyn LogStream, run: aod_domain::id::RunId, lines: &[LogLine]) {
    logs.publish(run, lines).await.expect("lines are taken");
}

async fn lines_are_read_from_the_first_then_live_then_resumed(
    logs: &dyn LogStream,
    elsewhere: &dyn LogStream,
) {
    let run = new_run();
    publish(logs, run, &lines(1, 1..3_000)).await;
    publish(logs, new_run(), &lines(1, 1..10)).await;
    let mut followed = elsewhere.follow(run, 0).await.expect("a stream");
    let expected = [lines(1, 1..3_000), lines(2, 1..10)].concat();
    let mut read = Vec::new();
    while read.len() < expected.len() {
        if read.len() == 2_000 {
            publish(logs, run, &lines(2, 1..10)).await;
        }
        read.push(soon(followed.next()).await.expect("a stream without end"));
    }
    assert!(read.iter().map(|(_, line)| line).eq(expected.iter()));
    let (seen, unseen) = read.split_at(2_990);
    let resumed = elsewhere.follow(run, seen[seen.len() - 1].0).await;
    let resumed = resumed.expect("a stream").take(unseen.len());
    assert_eq!(soon(resumed.collect::<Vec<_>>()).await, unseen);
}

async fn a_line_that_is_too_long_is_refused(logs: &dyn LogStream) {
    let mut long = lines(1, 1..2);
    long[0].text = "x".repeat(100_000);
    assert!(logs.publish(new_run(), &long).await.is_err());
}

async fn a_childs_lines_are_not_its_parents(logs: &dyn LogStream) {
    let root = new_run();
    publish(logs, root.child(&Digest::of("call")), &lines(1, 1..2)).await;
    publish(logs, root, &lines(1, 5..6)).await;
    let mut followed = logs.follow(root, 0).await.expect("a stream");
    let first = soon(followed.next()).await.expect("a stream without end");
    assert_eq!(first.1.number, 5);
}

/// Runs the suite of presence, which must be empty.
pub async fn check_presence(presence: &dyn Presence) {
    let members = async || presence.members().await.expect("an answer");
    assert_eq!(members().await, []);
    for member in [gateway(1), gateway(2), node(1, 2), node(1, 3)] {
        presence.announce(&member).await.expect("an answer");
    }
    assert_eq!(members().await, [gateway(1), gateway(2), node(1, 3)]);
    presence.leave(&gateway(1)).await.expect("an answer");
    assert_eq!(members().await, [gateway(2), node(1, 3)]);
    for slots in 4..100 {
        presence.announce(&node(1, slots)).await.expect("an answer");
        assert_eq!(members().await, [gateway(2), node(1, slots)]);
    }
    let begin = Instant::now();
    soon(async { while !members().await.is_empty() {} }).await;
    assert!(begin.elapsed().as_secs() < 2 * PRESENCE_SECONDS);
}
