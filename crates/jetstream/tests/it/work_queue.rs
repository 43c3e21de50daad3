//! The queue across the death of the server, and its rebuild.

use std::time::Duration;

use aod_domain::subject::{Class, Pool};
use aod_jetstream::{Broker, Config, JetStreamWorkQueue};
use aod_ports::event_log::EventLog as _;
use aod_ports::work_queue::{Delivery, WorkQueue as _};

use aod_testkit::events::{launch, new_run, pool, soon};

use crate::support::{config, start};

/// Time limit of a pull that must receive a launch.
const LONG: Duration = Duration::from_secs(20);

async fn queue(broker: &Broker, pool: &Pool) -> JetStreamWorkQueue {
    let queue = broker.work_queue();
    queue.ensure(pool).await.unwrap();
    queue
}

async fn pull_one(queue: &JetStreamWorkQueue, pool: &Pool) -> Delivery {
    let mut pulled = soon(queue.pull(pool, Class::Root, 1, LONG)).await.unwrap();
    assert_eq!(pulled.len(), 1, "{pulled:?}");
    pulled.remove(0)
}

/// The numbers of waiting and of delivered launches.
async fn waiting(queue: &JetStreamWorkQueue, pool: &Pool, class: Class) -> (u64, u64) {
    let all = queue.waiting().await.unwrap();
    let mut of = all
        .iter()
        .filter(|waiting| waiting.pool == *pool && waiting.class == class);
    let found = of.next().expect("a consumer that was made");
    (found.pending, found.delivered)
}

#[tokio::test]
async fn few_finished_launches_are_delivered_again_after_death_of_server() {
    const FINISHED: usize = 20;
    let (mut server, broker) = start().await;
    let (log, pool) = (broker.event_log(), pool("any"));
    let queue = queue(&broker, &pool).await;
    let mut sequences = Vec::new();
    for _ in 0..FINISHED {
        sequences.push(
            log.append(launch(new_run(), &pool, Class::Root))
                .await
                .unwrap(),
        );
        let delivery = pull_one(&queue, &pool).await;
        queue.acknowledge(&delivery.ack_subject).await.unwrap();
    }
    let begin = sequences[FINISHED / 2];
    queue.ensure_work(Some(begin)).await.unwrap();
    // Stored, but possibly not written yet when the server dies.
    let meanwhile = new_run();
    log.append(launch(meanwhile, &pool, Class::Root))
        .await
        .unwrap();
    let _server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap();
    let last = new_run();
    log.append(launch(last, &pool, Class::Root)).await.unwrap();
    let mut pulled: Vec<Delivery> = Vec::new();
    while pulled.last().is_none_or(|delivery| delivery.run != last) {
        // The consumer may not exist yet.
        if let Ok(more) = soon(queue.pull(&pool, Class::Root, 1, LONG)).await {
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
async fn rebuilt_queue_begins_at_given_sequence() {
    let (server, broker) = start().await;
    let (log, pool) = (broker.event_log(), pool("any"));
    let queue = queue(&broker, &pool).await;
    let (mut runs, mut sequences) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        runs.push(new_run());
        sequences.push(
            log.append(launch(runs[runs.len() - 1], &pool, Class::Root))
                .await
                .unwrap(),
        );
    }
    let before = pull_one(&queue, &pool).await;
    let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    context.delete_stream("WORK").await.unwrap();
    assert!(!queue.has_work().await.unwrap());
    assert!(
        queue
            .pull(&pool, Class::Root, 1, Duration::ZERO)
            .await
            .is_err()
    );

    queue.ensure_work(Some(sequences[2])).await.unwrap();
    queue.ensure_work(Some(sequences[0])).await.unwrap();
    let third = pull_one(&queue, &pool).await;
    assert_eq!(third.run, runs[2]);
    assert!(
        third.position > before.position,
        "a rebuilt queue has higher sequences than the one before"
    );
    // An acknowledgement of the earlier queue removes nothing from this queue.
    let fourth = pull_one(&queue, &pool).await;
    assert_eq!(fourth.run, runs[3]);
    queue.acknowledge(&before.ack_subject).await.unwrap();
    assert_eq!(waiting(&queue, &pool, Class::Root).await, (0, 2));
}

#[tokio::test]
async fn node_with_different_lease_is_rejected() {
    let (server, broker) = start().await;
    let pool = pool("any");
    queue(&broker, &pool).await;
    let other = Config {
        lease_seconds: 9,
        ..config(&server)
    };
    let other = Broker::connect(other).await.unwrap().work_queue();
    let error = other.ensure(&pool).await.unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        text.contains("a lease of 2 s") && text.contains("9 s"),
        "{text}"
    );
}
