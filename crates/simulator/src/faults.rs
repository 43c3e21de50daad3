//! The faults of a working cluster, one after the other, drawn from the seed. Each fault ends after a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::cluster::{Cluster, GATEWAYS, NODES};

/// Minimum faults of a simulation.
const TROUBLES_MIN: u64 = 4;

/// Maximum faults of a simulation.
const TROUBLES_MAX: u64 = 6;

/// Maximum pause between two faults, in milliseconds.
const PEACE_MILLISECONDS_MAX: u64 = 2_500;

/// Maximum time that a program is down or a connection is cut, in milliseconds: longer than a lease.
const TROUBLE_MILLISECONDS_MAX: u64 = 8_000;

/// How long a program that was killed by a launch stays down, in milliseconds.
const RESTART_MILLISECONDS: u64 = 500;

/// Injects faults; returns when all of them have ended.
pub(crate) async fn make_trouble(cluster: &Arc<Cluster>) {
    let world = &cluster.world;
    let mut troubles = Vec::new();
    for _ in 0..TROUBLES_MIN + world.below(TROUBLES_MAX - TROUBLES_MIN + 1) {
        let milliseconds = world.below(PEACE_MILLISECONDS_MAX);
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        troubles.push(tokio::spawn(one(Arc::clone(cluster))));
    }
    futures::future::join_all(troubles).await;
    // Faults may have overlapped: restart everything that is still down.
    (0..NODES).for_each(|index| cluster.start_node(index));
    (0..GATEWAYS).for_each(|index| cluster.start_gateway(index));
}

async fn one(cluster: Arc<Cluster>) {
    let world = cluster.world.clone();
    let (node, gateway) = (index(&cluster, NODES), index(&cluster, GATEWAYS));
    let rest = Duration::from_millis(100 + world.below(TROUBLE_MILLISECONDS_MAX));
    let tell = |kind| {
        world.count(kind);
        world.step("FAULT", kind);
    };
    match world.below(10) {
        0 => {
            tell("node killed");
            cluster.nodes[node].kill();
            tokio::time::sleep(rest).await;
            cluster.start_node(node);
        }
        1 => {
            tell("host lost");
            cluster.nodes[node].kill();
            cluster.engines[node].crash();
            tokio::time::sleep(rest).await;
            cluster.start_node(node);
        }
        2 => {
            tell("gateway killed");
            cluster.kill_gateway(gateway);
            tokio::time::sleep(rest).await;
            cluster.start_gateway(gateway);
        }
        3 => {
            tell("node cut off");
            cluster.nodes[node].network.set(false);
            tokio::time::sleep(rest).await;
            cluster.nodes[node].network.set(true);
        }
        4 => {
            tell("gateway cut off");
            cluster.gateways[gateway].network.set(false);
            tokio::time::sleep(rest).await;
            cluster.gateways[gateway].network.set(true);
        }
        5 => {
            tell("broker restarted");
            cluster.broker.switch.set(false);
            tokio::time::sleep(rest / 2).await;
            cluster.broker.switch.set(true);
        }
        6 => {
            tell("broker restarted without its queue");
            cluster.broker.switch.set(false);
            tokio::time::sleep(rest / 4).await;
            cluster.broker.lose_queue();
            cluster.broker.switch.set(true);
        }
        7 => {
            tell("engine unavailable");
            away(&cluster, node, rest / 2).await;
        }
        8 => {
            tell("engine restarted");
            away(&cluster, node, rest / 4).await;
            cluster.engines[node].restart();
        }
        _ => {
            tell("clock set");
            cluster.nodes[node].clock.jump();
            cluster.gateways[gateway].clock.jump();
        }
    }
}

/// The engine of a node does not answer for a while.
async fn away(cluster: &Cluster, node: usize, rest: Duration) {
    cluster.engines[node].switch.set(false);
    tokio::time::sleep(rest).await;
    cluster.engines[node].switch.set(true);
}

/// Ends the programs that a launch has killed, and restarts each after a while.
pub(crate) async fn bury(cluster: Arc<Cluster>, mut killed: UnboundedReceiver<String>) {
    while let Some(name) = killed.recv().await {
        let Some(node) = cluster.nodes.iter().position(|node| node.name == name) else {
            continue;
        };
        cluster.nodes[node].kill();
        let rest = Duration::from_millis(RESTART_MILLISECONDS);
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move {
            tokio::time::sleep(rest).await;
            cluster.start_node(node);
        });
    }
}

fn index(cluster: &Cluster, count: usize) -> usize {
    usize::try_from(cluster.world.below(count as u64)).unwrap_or_default()
}
