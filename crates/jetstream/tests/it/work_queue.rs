//! The queue: deliveries, leases, acknowledgements early and late.

use std::time::Duration;

use aod_domain::subject::{self, Class, Label};
use aod_jetstream::{Broker, Config, JetStreamWorkQueue};
use aod_ports::event_log::EventLog as _;
use aod_ports::work_queue::{Delivery, WorkQueue as _};
use tokio::time::Instant;

use crate::support::{LEASE, config, label, launch, new_run, soon, start};

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

async fn is_empty(queue: &JetStreamWorkQueue, label: &Label) -> bool {
    queue
        .pull(label, Class::Root, 1, Duration::ZERO)
        .await
        .unwrap()
        .is_empty()
}

#[tokio::test]
async fn a_launch_arrives_with_its_place_in_the_log() {
    let (_server, broker) = start().await;
    let (log, label, run) = (broker.event_log(), label("any"), new_run());
    let queue = queue(&broker, &label).await;
    let sequence = log.append(launch(run, &label, Class::Root)).await.unwrap();
    let delivery = pull_one(&queue, &label).await;
    assert_eq!(
        (delivery.run, delivery.class, delivery.position.delivery),
        (run, Class::Root, 1)
    );
    let stored = log.read(&subject::run_all(run), 0, 1).await.unwrap();
    assert_eq!(stored.first(), Some(&delivery.launch));
    assert_eq!(delivery.launch.sequence, sequence);
    queue.acknowledge(&delivery.ack_subject).await.unwrap();
    assert!(is_empty(&queue, &label).await);
    // To acknowledge again is harmless.
    queue.acknowledge(&delivery.ack_subject).await.unwrap();
}

#[tokio::test]
async fn labels_and_classes_are_apart() {
    let (_server, broker) = start().await;
    let (log, cpu, gpu) = (broker.event_log(), label("cpu"), label("gpu-large"));
    let queue = queue(&broker, &cpu).await;
    queue.ensure(&gpu).await.unwrap();
    queue.ensure(&gpu).await.unwrap();
    for class in [Class::Root, Class::Child, Class::Child] {
        log.append(launch(new_run(), &gpu, class)).await.unwrap();
    }
    let children = soon(queue.pull(&gpu, Class::Child, 1, LONG)).await.unwrap();
    assert_eq!(children.len(), 1);
    assert!(is_empty(&queue, &cpu).await);
    let mut found = Vec::new();
    for (label, class) in [
        (&cpu, Class::Child),
        (&cpu, Class::Root),
        (&gpu, Class::Child),
        (&gpu, Class::Root),
    ] {
        found.push(waiting(&queue, label, class).await);
    }
    assert_eq!(found, [(0, 0), (0, 0), (1, 1), (1, 0)]);
}

#[tokio::test]
async fn a_pull_takes_what_is_there_and_waits_only_for_the_first() {
    let (_server, broker) = start().await;
    let (log, label) = (broker.event_log(), label("any"));
    let queue = queue(&broker, &label).await;
    let begin = Instant::now();
    assert!(is_empty(&queue, &label).await);
    let patient = Duration::from_millis(300);
    assert!(
        queue
            .pull(&label, Class::Root, 5, patient)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(begin.elapsed() >= patient);

    for _ in 0..3 {
        log.append(launch(new_run(), &label, Class::Root))
            .await
            .unwrap();
    }
    soon(async { while waiting(&queue, &label, Class::Root).await.0 < 3 {} }).await;
    let begin = Instant::now();
    assert_eq!(
        queue
            .pull(&label, Class::Root, 2, LONG)
            .await
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        queue
            .pull(&label, Class::Root, 5, LONG)
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(
        begin.elapsed() < LONG,
        "a batch that is not full does not wait"
    );

    let (pulled, _) = tokio::join!(queue.pull(&label, Class::Root, 5, LONG), async {
        log.append(launch(new_run(), &label, Class::Root))
            .await
            .unwrap()
    });
    assert_eq!(pulled.unwrap().len(), 1);
    assert!(begin.elapsed() < LONG);
}

#[tokio::test]
async fn silence_brings_a_launch_back_and_progress_keeps_it() {
    let (_server, broker) = start().await;
    let (log, label) = (broker.event_log(), label("any"));
    let queue = queue(&broker, &label).await;
    log.append(launch(new_run(), &label, Class::Root))
        .await
        .unwrap();
    let first = pull_one(&queue, &label).await;
    let begin = Instant::now();
    while begin.elapsed() < LEASE * 2 {
        queue.progress(&first.ack_subject).await.unwrap();
        let none = queue.pull(&label, Class::Root, 1, LEASE / 4).await.unwrap();
        assert!(none.is_empty(), "held with progress");
    }
    let begin = Instant::now();
    let second = pull_one(&queue, &label).await;
    assert!(
        begin.elapsed() > LEASE / 2,
        "came back after {:?}",
        begin.elapsed()
    );
    assert_eq!((first.position.delivery, second.position.delivery), (1, 2));
    assert!(second.position > first.position);
    assert_eq!(second.launch, first.launch);
}

#[tokio::test]
async fn a_late_acknowledgement_takes_the_launch_from_its_new_holder() {
    let (_server, broker) = start().await;
    let (log, label) = (broker.event_log(), label("any"));
    let queue = queue(&broker, &label).await;
    log.append(launch(new_run(), &label, Class::Root))
        .await
        .unwrap();
    let first = pull_one(&queue, &label).await;
    let second = pull_one(&queue, &label).await;
    queue.acknowledge(&first.ack_subject).await.unwrap();
    // The broker confirms the progress of one who holds nothing: it proves nothing.
    queue.progress(&second.ack_subject).await.unwrap();
    let none = queue.pull(&label, Class::Root, 1, LEASE * 2).await.unwrap();
    assert!(none.is_empty(), "{none:?}");
}

#[tokio::test]
async fn what_is_given_back_comes_again_after_the_delay() {
    let (_server, broker) = start().await;
    let (log, label) = (broker.event_log(), label("any"));
    let queue = queue(&broker, &label).await;
    log.append(launch(new_run(), &label, Class::Root))
        .await
        .unwrap();
    let first = pull_one(&queue, &label).await;
    queue
        .give_back(&first.ack_subject, Duration::ZERO)
        .await
        .unwrap();
    let begin = Instant::now();
    let second = pull_one(&queue, &label).await;
    assert!(begin.elapsed() < LEASE / 2, "at once");
    let delay = Duration::from_millis(700);
    queue.give_back(&second.ack_subject, delay).await.unwrap();
    let begin = Instant::now();
    let third = pull_one(&queue, &label).await;
    assert!(
        begin.elapsed() + Duration::from_millis(50) >= delay,
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(third.position.delivery, 3);
}

#[tokio::test]
async fn a_dropped_pull_swallows_nothing() {
    let (_server, broker) = start().await;
    let (log, label) = (broker.event_log(), label("any"));
    let queue = queue(&broker, &label).await;
    for _ in 0..20 {
        let pull = queue.pull(&label, Class::Root, 3, LONG);
        assert!(
            tokio::time::timeout(Duration::from_millis(5), pull)
                .await
                .is_err()
        );
    }
    log.append(launch(new_run(), &label, Class::Root))
        .await
        .unwrap();
    let delivery = pull_one(&queue, &label).await;
    assert_eq!(delivery.position.delivery, 1);
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
