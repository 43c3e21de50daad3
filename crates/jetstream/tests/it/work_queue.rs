//! The queue across the death of the server, and where it is made anew.

use std::time::Duration;

use aod_domain::subject::{Class, Label};
use aod_jetstream::{Broker, Config, JetStreamWorkQueue};
use aod_ports::event_log::EventLog as _;
use aod_ports::work_queue::{Delivery, WorkQueue as _};

use aod_testkit::events::{label, launch, new_run, soon};

use crate::support::{config, start};

/// A pull that is sure to wait long enough for what the test has caused.
const LONG: Duration = Duration::from_secs(20);

async fn queue(broker: &Broker, label: &Label) -> JetStreamWorkQueue {
    let queue = broker.work_queue();
    queue.ensure(label).await.unwrap();
    queue
}

async fn pull_one(queue: &JetStreamWorkQueue, label: &Label) -> Delivery {
    let mut pulled = soon(queue.pull(label, Class::Root, 1, LONG)).await.unwrap();
    assert_eq!(pulled.len(), 1, "{pulled:?}");
    pulled.remove(0)
}

/// Launches that wait, and that are delivered.
async fn waiting(queue: &JetStreamWorkQueue, label: &Label, class: Class) -> (u64, u64) {
    let all = queue.waiting().await.unwrap();
    let mut of = all
        .iter()
        .filter(|waiting| waiting.label == *label && waiting.class == class);
    let found = of.next().expect("a consumer that was made");
    (found.pending, found.delivered)
}

#[tokio::test]
async fn few_finished_launches_come_again_when_the_server_dies() {
    const FINISHED: usize = 20;
    let (mut server, broker) = start().await;
    let (log, label) = (broker.event_log(), label("any"));
    let queue = queue(&broker, &label).await;
    let mut sequences = Vec::new();
    for _ in 0..FINISHED {
        sequences.push(
            log.append(launch(new_run(), &label, Class::Root))
                .await
                .unwrap(),
        );
        let delivery = pull_one(&queue, &label).await;
        queue.acknowledge(&delivery.ack_subject).await.unwrap();
    }
    let begin = sequences[FINISHED / 2];
    queue.ensure_work(Some(begin)).await.unwrap();
    // Stored, but perhaps not written yet when the server dies.
    let meanwhile = new_run();
    log.append(launch(meanwhile, &label, Class::Root))
        .await
        .unwrap();
    let _server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    let last = new_run();
    log.append(launch(last, &label, Class::Root)).await.unwrap();
    let mut pulled: Vec<Delivery> = Vec::new();
    while pulled.last().is_none_or(|delivery| delivery.run != last) {
        // The consumer may not be there yet.
        if let Ok(more) = soon(queue.pull(&label, Class::Root, 1, LONG)).await {
            pulled.extend(more);
        }
    }
    assert!(pulled.iter().any(|delivery| delivery.run == meanwhile));
    assert!(
        pulled
            .iter()
            .all(|delivery| delivery.launch.sequence >= begin),
        "{pulled:?}"
    );
}

#[tokio::test]
async fn a_queue_made_anew_begins_where_it_is_told() {
    let (server, broker) = start().await;
    let (log, label) = (broker.event_log(), label("any"));
    let queue = queue(&broker, &label).await;
    let (mut runs, mut sequences) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        runs.push(new_run());
        sequences.push(
            log.append(launch(runs[runs.len() - 1], &label, Class::Root))
                .await
                .unwrap(),
        );
    }
    let before = pull_one(&queue, &label).await;
    let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    context.delete_stream("WORK").await.unwrap();
    assert!(!queue.has_work().await.unwrap());
    assert!(
        queue
            .pull(&label, Class::Root, 1, Duration::ZERO)
            .await
            .is_err()
    );

    queue.ensure_work(Some(sequences[2])).await.unwrap();
    queue.ensure_work(Some(sequences[0])).await.unwrap();
    let third = pull_one(&queue, &label).await;
    assert_eq!(third.run, runs[2]);
    assert!(
        third.position > before.position,
        "a queue made anew comes after the one before"
    );
    // What belonged to the queue before takes nothing from this one.
    let fourth = pull_one(&queue, &label).await;
    assert_eq!(fourth.run, runs[3]);
    queue.acknowledge(&before.ack_subject).await.unwrap();
    assert_eq!(waiting(&queue, &label, Class::Root).await, (0, 2));
}

#[tokio::test]
async fn nodes_with_different_leases_are_refused() {
    let (server, broker) = start().await;
    let label = label("any");
    queue(&broker, &label).await;
    let other = Config {
        lease_seconds: 9,
        ..config(&server)
    };
    let other = Broker::connect(other).await.unwrap().work_queue();
    let error = other.ensure(&label).await.unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        text.contains("a lease of 2 s") && text.contains("9 s"),
        "{text}"
    );
}
