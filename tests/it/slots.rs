//! A waiting run holds no slot, even while it waits for callees of a dead node.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::admission::Capacity;
use aod_domain::digest::Digest;
use aod_domain::id::{IncarnationId, NodeId, RunId};
use aod_domain::run::{Command, Holder, Launched, Parent, fixtures};
use aod_domain::subject::{Class, Pool};
use aod_jetstream::Broker;
use aod_ports::clock::{Clock as _, SystemClock};
use aod_ports::work_queue::{Delivery, WorkQueue as _};
use aod_services::runs::Runs;
use aod_tests::client::eventually;
use aod_tests::cluster::Cluster;
use aod_tests::simulated::runtime;
use jiff::SignedDuration;

/// A node that takes launches and is then silent forever.
struct DeadNode {
    broker: Broker,
    runs: Runs,
    node: NodeId,
    incarnation: IncarnationId,
}

impl DeadNode {
    async fn of(cluster: &Cluster) -> Self {
        let broker = cluster.broker("dead").await;
        let log = Arc::new(broker.event_log());
        let runs = Runs::new(log, Arc::new(SystemClock), "/test");
        Self {
            runs,
            broker,
            node: NodeId::new(SystemClock.fresh_uuid()),
            incarnation: IncarnationId::new(SystemClock.fresh_uuid()),
        }
    }

    /// Launches a run, and takes its lease.
    async fn take(&self, run: RunId, launched: Launched) -> Delivery {
        let launched = Launched {
            deadline: SystemClock.now() + SignedDuration::from_hours(1),
            ..launched
        };
        let class = launched.placement.class;
        self.handle(run, Command::Launch(launched.into())).await;
        let delivery = self.pull(class).await;
        assert_eq!(delivery.run, run);
        let holder = Holder::Node {
            node: self.node,
            incarnation: self.incarnation,
            work: delivery.position,
            ack_subject: delivery.ack_subject.clone(),
            token_sha256: Digest::of("token"),
        };
        let is_holder_gone = false;
        let lease = Command::Lease {
            holder,
            is_holder_gone,
        };
        self.handle(run, lease).await;
        delivery
    }

    async fn handle(&self, run: RunId, command: Command) {
        let handled = self.runs.handle(run, &command, None).await;
        handled.expect("a command that fits");
    }

    async fn pull(&self, class: Class) -> Delivery {
        let (queue, pool) = (self.broker.work_queue(), Pool::any());
        let ready = async || queue.ensure(&pool).await.is_ok();
        eventually("the gateway has made the queue", ready).await;
        let wait = Duration::from_secs(10);
        let pulled = queue.pull(&pool, class, 1, wait).await;
        pulled.expect("the queue answers").remove(0)
    }
}

/// The only node first takes over the caller, which must end its callee; the callee is redelivered after its lease.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_caller_releases_its_slot_for_its_callees() {
    let mut cluster = Cluster::start(1).await;
    let client = cluster.client(0);
    let dead = DeadNode::of(&cluster).await;
    let caller = RunId::root_of(SystemClock.fresh_uuid());
    let call_key = Digest::of("call");
    let delivery = dead.take(caller, fixtures::launched()).await;
    let called = Launched {
        parent: Some(Parent {
            run: caller,
            attempt: 1,
            call_key,
            event: Digest::of("the caller's lease"),
        }),
        ..fixtures::launched_child()
    };
    dead.take(caller.child(&call_key), called).await;
    client.post(&format!("/v1/runs/{caller}/cancel")).await;
    let queue = dead.broker.work_queue();
    let given_back = queue.give_back(&delivery.ack_subject, Duration::ZERO).await;
    given_back.expect("the queue answers");

    let one_slot = Capacity {
        slots: 1,
        containers_max: 4,
        memory_bytes: 1 << 30,
    };
    cluster.add_node(&["any"], one_slot, runtime([])).await;
    let result = client.result(&caller.to_string()).await;
    assert_eq!(result["state"], "cancelled", "{result}");
}
