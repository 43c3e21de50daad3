//! The double passes the conformance suites of the real broker, in virtual time.

use aod_ports::event_log::EventLog;
use aod_testkit::{event_log, feed, live, work_queue};

use super::feed::SimulatedFeed;
use super::live::{SimulatedLogs, SimulatedPresence};
use super::log::SimulatedLog;
use super::queue::SimulatedQueue;
use super::*;
use crate::link::Link;

const LEASE: Duration = Duration::from_secs(2);

/// Number of worlds that lose messages, in addition to one that loses none.
const HOSTILE_SEEDS: u64 = 50;

fn broker(seed: u64) -> Broker {
    Broker::new(&World::new(seed, false), LEASE)
}

fn calm_broker() -> Broker {
    let broker = broker(0);
    broker.world.calm();
    broker
}

fn link(broker: &Broker, who: &str) -> Link {
    Link::new(&broker.world, who, &Switch::new(), &broker.switch)
}

fn event_log(broker: &Broker, who: &str) -> Arc<dyn EventLog> {
    Arc::new(SimulatedLog {
        broker: broker.clone(),
        link: link(broker, who),
    })
}

#[tokio::test(start_paused = true)]
async fn event_log_double_passes_conformance_suite() {
    let broker = calm_broker();
    event_log::check_all(&event_log(&broker, "here"), &event_log(&broker, "there")).await;
}

#[tokio::test(start_paused = true)]
async fn event_log_double_passes_conformance_suite_with_lost_messages() {
    for seed in 0..HOSTILE_SEEDS {
        let broker = broker(seed);
        event_log::check_all(&event_log(&broker, "here"), &event_log(&broker, "there")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn work_queue_double_passes_conformance_suite() {
    let broker = calm_broker();
    let log = event_log(&broker, "log");
    let queue = SimulatedQueue {
        link: link(&broker, "queue"),
        broker,
    };
    let queues = work_queue::Queues {
        log: &*log,
        queue: &queue,
        lease: LEASE,
    };
    queues.check_all().await;
}

#[tokio::test(start_paused = true)]
async fn feed_double_passes_conformance_suite() {
    let broker = calm_broker();
    let log = event_log(&broker, "log");
    let ends = |who| SimulatedFeed {
        broker: broker.clone(),
        link: link(&broker, who),
    };
    feed::check_all(&*log, &ends("here"), &ends("there")).await;
}

#[tokio::test(start_paused = true)]
async fn log_stream_double_passes_conformance_suite() {
    let broker = calm_broker();
    let logs = |who| SimulatedLogs {
        broker: broker.clone(),
        link: link(&broker, who),
    };
    live::check_logs(&logs("here"), &logs("there")).await;
}

#[tokio::test(start_paused = true)]
async fn presence_double_passes_conformance_suite() {
    let broker = calm_broker();
    let presence = SimulatedPresence {
        link: link(&broker, "presence"),
        broker,
    };
    live::check_presence(&presence).await;
}
