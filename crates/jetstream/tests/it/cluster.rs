//! Three servers with three copies: other codes for conflicts, lagging replicas, leaders that die.

use std::net::TcpListener;
use std::time::Duration;

use aod_domain::subject::{self, Class};
use aod_jetstream::{Broker, Config, StreamLimits};
use aod_ports::event_log::{EventLog as _, Followed, From};
use aod_ports::work_queue::WorkQueue as _;
use aod_testkit::events::{grow, launch, new_run, pool, soon, state_event};
use aod_testkit::{NatsConfig, NatsServer, live};
use futures::StreamExt as _;

use crate::conformance::{check_queue, event_log};
use crate::support::{LEASE, config};

/// Maximum time until a queue detects the death of its source's server: 30 to 40 s measured with nats-server
/// 2.15, if that server led the log or the queue.
const SOURCE_STALLS_MAX: Duration = Duration::from_secs(120);

/// Three servers with routes to each other. Routes need known ports, so the test draws free ports and
/// releases them for the servers.
fn start() -> Vec<NatsServer> {
    let drawn: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let addresses: Vec<String> = drawn
        .iter()
        .map(|listener| listener.local_addr().unwrap().to_string())
        .collect();
    drop(drawn);
    let routes: Vec<String> = addresses
        .iter()
        .map(|address| format!("nats://{address}"))
        .collect();
    let routes = routes.join(", ");
    addresses
        .iter()
        .enumerate()
        .map(|(number, address)| {
            let extra = format!(
                "server_name: s{number}\ncluster {{ name: test, listen: \"{address}\", routes: [{routes}] }}\n"
            );
            NatsServer::start(NatsConfig { extra, ..NatsConfig::default() })
        })
        .collect()
}

async fn connect(servers: &[NatsServer]) -> Broker {
    let limits = StreamLimits {
        replicas: 3,
        ..StreamLimits::default()
    };
    let config = Config {
        servers: servers.iter().map(NatsServer::url).collect(),
        limits: Some(limits),
        ..config(&servers[0])
    };
    // Without a leader, the servers do not answer requests to create streams.
    soon(async {
        loop {
            match Broker::connect(config.clone()).await {
                Ok(broker) => return broker,
                Err(error) => eprintln!("not yet: {error:?}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn ports_conform_with_three_copies() {
    let servers = start();
    let (broker, elsewhere) = (connect(&servers).await, connect(&servers).await);
    aod_testkit::event_log::check_all(&event_log(&broker), &event_log(&elsewhere)).await;
    check_queue(&broker).await;
    live::check_logs(&broker.log_stream(), &elsewhere.log_stream()).await;
    live::check_presence(&broker.presence()).await;
}

#[tokio::test]
async fn two_of_three_servers_continue() {
    let mut servers = start();
    let broker = connect(&servers).await;
    let (log, pool) = (broker.event_log(), pool("any"));
    let queue = broker.work_queue();
    queue.ensure(&pool).await.unwrap();
    let mut followed = log.follow(subject::ALL, From::After(0)).await.unwrap();
    let run = new_run();
    let first = state_event(run, 0, "first");
    let sequence = log.append(first.clone()).await.unwrap();
    let before = grow(&log, new_run(), 20).await;
    let job = new_run();
    log.append(launch(job, &pool, Class::Root)).await.unwrap();

    let killed = servers.remove(0);
    drop(killed);
    assert_eq!(log.append(first).await.unwrap(), sequence, "long after");
    let after = soon(grow(&log, new_run(), 20)).await;
    let pulled = tokio::time::timeout(SOURCE_STALLS_MAX, async {
        loop {
            match queue.pull(&pool, Class::Root, 1, LEASE * 5).await {
                Ok(pulled) if !pulled.is_empty() => return pulled,
                other => eprintln!("not yet: {other:?}"),
            }
        }
    });
    assert_eq!(pulled.await.unwrap()[0].run, job);

    let count = 1 + before.len() + 1 + after.len();
    let mut seen = Vec::new();
    while seen.len() < count {
        if let Followed::Event(event) = soon(followed.next()).await.unwrap() {
            seen.push(event.sequence);
        }
    }
    assert!(seen.is_sorted());
    assert_eq!(seen[count - after.len()..], after);
    let stored = log.read(subject::ALL, 0, 1_000).await.unwrap();
    let stored: Vec<u64> = stored.iter().map(|event| event.sequence).collect();
    assert_eq!(stored, seen);
}
