//! Three servers, three copies: other codes for conflicts, replicas that lag, leaders that die.

use std::net::TcpListener;

use aod_domain::subject::{self, Class};
use aod_jetstream::{Broker, Config, StreamLimits};
use aod_ports::event_log::{AppendError, EventLog as _, From, Told};
use aod_ports::work_queue::WorkQueue as _;
use aod_testkit::{NatsConfig, NatsServer};
use futures::StreamExt as _;

use crate::support::{LEASE, config, grow, label, launch, new_run, soon, state_event};

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
async fn three_copies_keep_the_same_promises() {
    const WRITERS: usize = 4;
    const EACH: usize = 10;
    let mut servers = start();
    let broker = connect(&servers).await;
    let (log, label) = (broker.event_log(), label("any"));
    let queue = broker.work_queue();
    queue.ensure(&label).await.unwrap();
    let mut told = log.follow(subject::ALL, From::After(0)).await.unwrap();

    let run = new_run();
    let first = state_event(run, 0, "first");
    let sequence = log.append(first.clone()).await.unwrap();
    assert_eq!(log.append(first.clone()).await.unwrap(), sequence);
    let filter = subject::run_state(run);
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (log, filter) = (log.clone(), filter.clone());
            tokio::spawn(async move {
                let mut stored = 0;
                while stored < EACH {
                    let seen = log.read(&filter, 0, 1_000).await.unwrap();
                    let last = seen.last().map_or(0, |event| event.sequence);
                    match log.append(state_event(run, last, "x")).await {
                        Ok(_) => stored += 1,
                        Err(AppendError::Conflict { .. }) => (),
                        Err(error) => panic!("{error:?}"),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        soon(writer).await.unwrap();
    }
    assert_eq!(log.append(first).await.unwrap(), sequence, "long after");

    let job = new_run();
    log.append(launch(job, &label, Class::Root)).await.unwrap();
    let pulled = soon(queue.pull(&label, Class::Root, 1, LEASE * 5))
        .await
        .unwrap();
    assert_eq!(pulled[0].run, job);
    queue.acknowledge(&pulled[0].ack_subject).await.unwrap();

    let killed = servers.remove(0);
    drop(killed);
    let after = soon(grow(&log, new_run(), 20)).await;
    let count = 1 + WRITERS * EACH + 1 + after.len();
    let mut seen = Vec::new();
    while seen.len() < count {
        if let Told::Event(event) = soon(told.next()).await.unwrap() {
            seen.push(event.sequence);
        }
    }
    assert!(seen.is_sorted());
    assert_eq!(seen[count - after.len()..], after);
    let stored = log.read(subject::ALL, 0, 1_000).await.unwrap();
    assert_eq!(
        stored
            .iter()
            .map(|event| event.sequence)
            .collect::<Vec<_>>(),
        seen
    );
}
