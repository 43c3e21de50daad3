//! The conformance suites of the ports against one server; `cluster` runs them against three.

use std::sync::Arc;

use aod_jetstream::{Broker, Config};
use aod_ports::event_log::EventLog;
use aod_testkit::{event_log, feed, live, work_queue};

use crate::support::{LEASE, config, connect, start};

pub(crate) fn event_log(broker: &Broker) -> Arc<dyn EventLog> {
    Arc::new(broker.event_log())
}

/// Runs the suite of the queue.
pub(crate) async fn check_queue(broker: &Broker) {
    let (log, queue) = (broker.event_log(), broker.work_queue());
    let queues = work_queue::Queues {
        log: &log,
        queue: &queue,
        lease: LEASE,
    };
    queues.check_all().await;
}

#[tokio::test]
async fn event_log_conforms() {
    let (server, broker) = start().await;
    let elsewhere = connect(&server).await;
    event_log::check_all(&event_log(&broker), &event_log(&elsewhere)).await;
}

#[tokio::test]
async fn event_log_without_consumers_conforms() {
    let (server, broker) = start().await;
    let elsewhere = Broker::connect(Config {
        makes_streams: false,
        ..config(&server)
    });
    let elsewhere = elsewhere.await.expect("the broker takes us");
    event_log::check_all(&event_log(&broker), &event_log(&elsewhere)).await;
}

#[tokio::test]
async fn work_queue_conforms() {
    let (_server, broker) = start().await;
    check_queue(&broker).await;
}

#[tokio::test]
async fn feed_conforms() {
    let (server, broker) = start().await;
    let elsewhere = connect(&server).await;
    let open = async |broker: &Broker, name| broker.feed(name).await.expect("a feed");
    let (here, there) = (open(&broker, "one").await, open(&elsewhere, "one").await);
    feed::check_all(&broker.event_log(), &here, &there).await;
    let other = open(&broker, "other").await;
    feed::check_names(&broker.event_log(), &here, &other).await;
}

#[tokio::test]
async fn log_stream_conforms() {
    let (server, broker) = start().await;
    let elsewhere = connect(&server).await;
    live::check_logs(&broker.log_stream(), &elsewhere.log_stream()).await;
}

#[tokio::test]
async fn presence_conforms() {
    let (_server, broker) = start().await;
    live::check_presence(&broker.presence()).await;
}
