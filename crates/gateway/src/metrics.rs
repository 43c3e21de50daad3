//! Metrics for Prometheus: requests, launches, waiters, queues, the read model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aod_domain::subject::Class;
use axum::http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Bounds of the histogram of answers, in seconds: from a read in memory to a wait for a run.
const DURATION_SECONDS: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    /// The pattern of the route, not the path: the number of paths has no limit.
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    pool: String,
    /// Requirements of its runs in addition to the pool; empty for most.
    requirements: String,
    class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabels {
    pool: String,
    requirements: String,
}

/// A queue as metrics name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueName {
    pub(crate) pool: String,
    pub(crate) requirements: String,
}

/// All metrics of a gateway.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Histogram,
    launches: Family<ClassLabels, Counter>,
    waiters: Gauge,
    requested: Gauge,
    read_model_sequence: Gauge,
    read_model_lag: Gauge,
    queue: Family<QueueLabels, Gauge>,
    oldest: Family<WaitLabels, Gauge<f64, AtomicU64>>,
    /// The queues of `oldest`.
    reported: Mutex<BTreeSet<QueueName>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("aod_gateway");
        let requests = Family::<RequestLabels, Counter>::default();
        let durations = Histogram::new(DURATION_SECONDS);
        let launches = Family::<ClassLabels, Counter>::default();
        let (waiters, read_model_sequence) = (Gauge::default(), Gauge::default());
        let (read_model_lag, requested) = (Gauge::default(), Gauge::default());
        let queue = Family::<QueueLabels, Gauge>::default();
        let oldest = Family::<WaitLabels, Gauge<f64, AtomicU64>>::default();
        registry.register("requests", "Requests answered", requests.clone());
        let help = "Time from a request's headers to the headers of its answer";
        registry.register_with_unit("request_duration", help, Unit::Seconds, durations.clone());
        registry.register("launches", "Launches stored or joined", launches.clone());
        registry.register(
            "waiters",
            "Runs whose result a caller waits for",
            waiters.clone(),
        );
        let help = "Runs that wait for admission";
        registry.register("requested", help, requested.clone());
        let help = "Sequence of the last event in the read model";
        registry.register("read_model_sequence", help, read_model_sequence.clone());
        let help = "Events that are not in the read model yet";
        registry.register("read_model_lag", help, read_model_lag.clone());
        registry.register(
            "queue_pending",
            "Launches that no node has taken yet",
            queue.clone(),
        );
        let help = "Waiting time of the run that has waited longest for a node";
        registry.register_with_unit("queue_oldest", help, Unit::Seconds, oldest.clone());
        Self {
            registry,
            requests,
            durations,
            launches,
            waiters,
            requested,
            read_model_sequence,
            read_model_lag,
            queue,
            oldest,
            reported: Mutex::default(),
        }
    }

    pub(crate) fn observe_request(
        &self,
        method: &Method,
        route: &str,
        status: u16,
        duration: Duration,
    ) {
        let labels = RequestLabels {
            method: method.to_string(),
            route: route.to_owned(),
            status,
        };
        self.requests.get_or_create(&labels).inc();
        self.durations.observe(duration.as_secs_f64());
    }

    pub(crate) fn count_launch(&self, class: Class) {
        let class = match class {
            Class::Child => "child",
            Class::Root => "root",
        };
        self.launches.get_or_create(&ClassLabels { class }).inc();
    }

    /// Sets the waiting time of the oldest run of each queue; queues reported earlier get 0.
    pub(crate) fn set_oldest(&self, oldest: &BTreeMap<QueueName, f64>) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.extend(oldest.keys().cloned());
        for queue in reported.iter() {
            let labels = WaitLabels {
                pool: queue.pool.clone(),
                requirements: queue.requirements.clone(),
            };
            let seconds = oldest.get(queue).copied().unwrap_or_default();
            self.oldest.get_or_create(&labels).set(seconds);
        }
    }

    pub(crate) fn set_queue(&self, queue: QueueName, class: Class, pending: u64) {
        let labels = QueueLabels {
            pool: queue.pool,
            requirements: queue.requirements,
            class: class.to_string(),
        };
        self.queue
            .get_or_create(&labels)
            .set(i64::try_from(pending).unwrap_or(i64::MAX));
    }

    /// Sets the number of events that are not in the read model yet.
    pub(crate) fn set_read_model_lag(&self, events: u64) {
        self.read_model_lag
            .set(i64::try_from(events).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_requested(&self, runs: usize) {
        self.requested.set(i64::try_from(runs).unwrap_or(i64::MAX));
    }

    /// The text format of Prometheus.
    pub(crate) fn encode(&self, waiters: usize, read_model_sequence: u64) -> String {
        self.waiters.set(i64::try_from(waiters).unwrap_or(i64::MAX));
        self.read_model_sequence
            .set(i64::try_from(read_model_sequence).unwrap_or(i64::MAX));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to memory does not fail");
        text
    }
}
