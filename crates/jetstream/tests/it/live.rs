//! The live tail of outputs, and presence.

use aod_domain::id::{GatewayId, IncarnationId, NodeId, RunId};
use aod_ports::log_stream::{LogLine, LogStream as _, Output};
use aod_ports::presence::{GatewayMember, Member, NodeMember, PRESENCE_SECONDS, Presence as _};
use futures::StreamExt as _;
use jiff::Timestamp;
use uuid::Uuid;

use crate::support::{connect, label, new_run, soon, start};

fn lines(attempt: u32, numbers: std::ops::Range<u64>) -> Vec<LogLine> {
    numbers
        .map(|number| LogLine {
            attempt,
            number,
            at: Timestamp::UNIX_EPOCH,
            output: Output::Stdout,
            text: format!("line {number}"),
        })
        .collect()
}

#[tokio::test]
async fn lines_are_read_from_the_first_then_live_then_resumed() {
    let (server, broker) = start().await;
    let (logs, run) = (broker.log_stream(), new_run());
    let reader = connect(&server).await.log_stream();
    logs.publish(run, &lines(1, 1..3_000)).await.unwrap();
    logs.publish(new_run(), &lines(1, 1..10)).await.unwrap();
    let mut followed = reader.follow(run, 0).await.unwrap();
    logs.publish(run, &lines(2, 1..10)).await.unwrap();
    let expected = [lines(1, 1..3_000), lines(2, 1..10)].concat();
    let mut read = Vec::new();
    while read.len() < expected.len() {
        read.push(soon(followed.next()).await.unwrap());
    }
    assert!(read.iter().map(|(_, line)| line).eq(expected.iter()));
    let (seen, unseen) = read.split_at(2_990);
    let resumed = reader.follow(run, seen[seen.len() - 1].0).await.unwrap();
    let rest: Vec<_> = soon(resumed.take(unseen.len()).collect()).await;
    assert_eq!(rest, unseen);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_refused() {
    let (_server, broker) = start().await;
    let mut long = lines(1, 1..2);
    long[0].text = "x".repeat(100_000);
    assert!(broker.log_stream().publish(new_run(), &long).await.is_err());
}

fn gateway(number: u128) -> Member {
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
        labels: vec![label("any")],
        slots,
        running: 0,
        waiting: 0,
        containers: 0,
        draining: false,
        not_ready: None,
    })
}

#[tokio::test]
async fn members_are_there_while_they_say_so() {
    let (_server, broker) = start().await;
    let presence = broker.presence();
    assert_eq!(presence.members().await.unwrap(), []);
    for member in [gateway(1), gateway(2), node(1, 2), node(1, 3)] {
        presence.announce(&member).await.unwrap();
    }
    let members = presence.members().await.unwrap();
    assert_eq!(members, [gateway(1), gateway(2), node(1, 3)]);
    presence.leave(&gateway(1)).await.unwrap();
    assert_eq!(presence.members().await.unwrap(), [gateway(2), node(1, 3)]);
    let begin = std::time::Instant::now();
    soon(async { while !presence.members().await.unwrap().is_empty() {} }).await;
    assert!(begin.elapsed().as_secs() < 2 * PRESENCE_SECONDS);
}

#[tokio::test]
async fn presence_is_made_again_when_the_server_has_forgotten_it() {
    let (mut server, broker) = start().await;
    let presence = broker.presence();
    presence.announce(&gateway(1)).await.unwrap();
    let server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    let reader = connect(&server).await.presence();
    soon(async { while presence.announce(&gateway(2)).await.is_err() {} }).await;
    assert!(reader.members().await.unwrap().contains(&gateway(2)));
}

#[tokio::test]
async fn a_childs_lines_are_not_its_parents() {
    let (_server, broker) = start().await;
    let logs = broker.log_stream();
    let root = new_run();
    let child: RunId = root.child(&aod_domain::digest::Digest::of("call"));
    logs.publish(child, &lines(1, 1..2)).await.unwrap();
    logs.publish(root, &lines(1, 5..6)).await.unwrap();
    let mut followed = logs.follow(root, 0).await.unwrap();
    assert_eq!(soon(followed.next()).await.unwrap().1.number, 5);
}
