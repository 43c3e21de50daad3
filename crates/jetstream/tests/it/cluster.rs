//! Three servers, three copies: other codes for conflicts, replicas that lag, leaders that die.

use std::net::TcpListener;
use std::time::Duration;

use aod_domain::subject::{self, Class};
use aod_jetstream::{Broker, Config, StreamLimits};
use aod_ports::event_log::{EventLog as _, From, Told};
use aod_ports::work_queue::WorkQueue as _;
use aod_testkit::events::{grow, label, launch, new_run, soon, state_event};
use aod_testkit::{NatsConfig, NatsServer, live};
use futures::StreamExt as _;

use crate::conformance::{check_queue, event_log};
use crate::support::{LEASE, config};

/// How long a queue may not notice that the server is dead from which it takes its launches: 30 to 40 s
/// were measured with nats-server 2.15, when that server led the log or the queue.
const SOURCE_STALLS_MAX: Duration = Duration::from_secs(120);

/// Three servers that know each other. Routes must be known before, so their ports are drawn here
/// and freed for the servers a moment later.
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
    // Without a leader, requests to make streams are not answered.
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
async fn three_copies_conform() {
    let servers = start();
    let (broker, elsewhere) = (connect(&servers).await, connect(&servers).await);
    aod_testkit::event_log::check_all(&event_log(&broker), &event_log(&elsewhere)).await;
    check_queue(&broker).await;
    live::check_logs(&broker.log_stream(), &elsewhere.log_stream()).await;
    live::check_presence(&broker.presence()).await;
}

#[tokio::test]
async fn two_of_three_servers_go_on() {
    let mut servers = start();
    let broker = connect(&servers).await;
    let (log, label) = (broker.event_log(), label("any"));
    let queue = broker.work_queue();
    queue.ensure(&label).await.unwrap();
    let mut told = log.follow(subject::ALL, From::After(0)).await.unwrap();
    let run = new_run();
    let first = state_event(run, 0, "first");
    let sequence = log.append(first.clone()).await.unwrap();
    let before = grow(&log, new_run(), 20).await;
    let job = new_run();
    log.append(launch(job, &label, Class::Root)).await.unwrap();

    let killed = servers.remove(0);
    drop(killed);
    assert_eq!(log.append(first).await.unwrap(), sequence, "long after");
    let after = soon(grow(&log, new_run(), 20)).await;
    let pulled = tokio::time::timeout(SOURCE_STALLS_MAX, async {
        loop {
            match queue.pull(&label, Class::Root, 1, LEASE * 5).await {
                Ok(pulled) if !pulled.is_empty() => return pulled,
                other => eprintln!("not yet: {other:?}"),
            }
        }
    });
    assert_eq!(pulled.await.unwrap()[0].run, job);

    let count = 1 + before.len() + 1 + after.len();
    let mut seen = Vec::new();
    while seen.len() < count {
        if let Told::Event(event) = soon(told.next()).await.unwrap() {
            seen.push(event.sequence);
        }
    }
    assert!(seen.is_sorted());
    assert_eq!(seen[count - after.len()..], after);
    let stored = log.read(subject::ALL, 0, 1_000).await.unwrap();
    let stored: Vec<u64> = stored.iter().map(|event| event.sequence).collect();
    assert_eq!(stored, seen);
}
