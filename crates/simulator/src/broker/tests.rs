//! The double passes the suites of the real broker, in virtual time.

use aod_ports::event_log::EventLog;
use aod_testkit::{event_log, feed, live, work_queue};

use super::feed::SimulatedFeed;
use super::live::{SimulatedLogs, SimulatedPresence};
use super::log::SimulatedLog;
use super::queue::SimulatedQueue;
use super::*;
use crate::link::Link;

const LEASE: Duration = Duration::from_secs(2);

/// Worlds in which messages get lost, beside the one in which nothing does.
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
async fn the_event_log_conforms() {
    let broker = calm_broker();
    event_log::check_all(&event_log(&broker, "here"), &event_log(&broker, "there")).await;
}

#[tokio::test(start_paused = true)]
async fn the_event_log_conforms_while_requests_and_answers_get_lost() {
    for seed in 0..HOSTILE_SEEDS {
        let broker = broker(seed);
        event_log::check_all(&event_log(&broker, "here"), &event_log(&broker, "there")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_work_queue_conforms() {
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
async fn the_feed_of_ends_conforms() {
    let broker = calm_broker();
    let log = event_log(&broker, "log");
    let ends = |who| SimulatedFeed {
        broker: broker.clone(),
        link: link(&broker, who),
    };
    feed::check_all(&*log, &ends("here"), &ends("there")).await;
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_logs_conforms() {
    let broker = calm_broker();
    let logs = |who| SimulatedLogs {
        broker: broker.clone(),
        link: link(&broker, who),
    };
    live::check_logs(&logs("here"), &logs("there")).await;
}

#[tokio::test(start_paused = true)]
async fn presence_conforms() {
    let broker = calm_broker();
    let presence = SimulatedPresence {
        link: link(&broker, "presence"),
        broker,
    };
    live::check_presence(&presence).await;
}
