//! The broker and the artifact store that flags name, as the ports that gateways and nodes use.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aod_artifacts::CacheConfig;
use aod_jetstream::object_store::{BucketConfig, JetStreamObjectStore, SWEEP_AGE_SECONDS_MIN};
use aod_jetstream::{Broker, Config, ConnectError, Credentials, StreamError};
use aod_ports::artifact_store::ArtifactStore;

use super::certificates::hint_of_refusal;
use crate::arguments::BrokerArguments;
use crate::failure::Failure;

/// As what programs connect. A node makes no streams: its rights end there.
pub const GATEWAY: &str = "gateway";
pub const NODE: &str = "node";

/// The word for artifacts in the broker itself.
const STORE_IN_BROKER: &str = "jetstream";

/// Largest sum of the artifacts in the broker, in bytes: with the log, the queue and the live logs
/// (8 GiB) it stays below the 20 GiB that our configurations of nats-server give to JetStream.
const BUCKET_BYTES_MAX: u64 = 10 << 30;

/// How often artifacts of uploads that were cut off are looked for: they only take room.
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);

/// Connects as a program of the kind `kind`: [`GATEWAY`] or [`NODE`].
pub async fn connect(arguments: &BrokerArguments, kind: &str) -> Result<Broker, Failure> {
    let credentials = match &arguments.nats_credentials {
        None => Credentials::None,
        Some(path) => Credentials::from_file(path).map_err(|error| {
            Failure::usage("the broker's credentials cannot be used").because(&error)
        })?,
    };
    let config = Config {
        servers: arguments.nats.clone(),
        credentials,
        certificate_authority: arguments.nats_ca.clone(),
        name: format!("aod-{kind}-{}", uuid::Uuid::now_v7().simple()),
        makes_streams: kind != NODE,
        monitoring_url: arguments.nats_monitoring.clone(),
        lease_seconds: arguments.lease_seconds,
        replicas: arguments.nats_replicas.into(),
        limits: None,
    };
    Broker::connect(config).await.map_err(|error| {
        let failure = Failure::environment("the broker cannot be used").because(&error);
        if let Some(hint) = hint_of_refusal(failure.message()) {
            return failure.with_hint(hint);
        }
        if failure.message().contains("may not publish") {
            return failure.with_hint(
                "--nats-credentials names nats-gateway.creds for a gateway, nats-node.creds for a node",
            );
        }
        let hint = match &error {
            ConnectError::Unreachable { .. } => {
                "see that nats-server runs there, and that --nats names it"
            }
            ConnectError::Refused { .. } => {
                "see that --nats-credentials holds a user of that server"
            }
            ConnectError::Stream(StreamError::Missing { .. }) => "start a gateway first",
            ConnectError::Stream(StreamError::Mismatch { .. }) => {
                "start a gateway once with nats-admin.creds: it may change what is there"
            }
            ConnectError::TooOld { .. } | ConnectError::Stream(_) => "`aod doctor` looks closer",
        };
        failure.with_hint(hint)
    })
}

/// Opens the artifact store for a program of the kind `kind`; `cache` is a directory of this process alone.
pub async fn artifacts(
    arguments: &BrokerArguments,
    broker: &Broker,
    kind: &str,
    cache: &Path,
) -> Result<Arc<dyn ArtifactStore>, Failure> {
    let cache = CacheConfig {
        directory: cache.to_owned(),
        bytes_max: arguments.cache_bytes,
    };
    let url = &arguments.store;
    let unusable = |error: &(dyn std::error::Error + 'static)| {
        Failure::environment(format!("the artifact store `{url}` cannot be used")).because(error)
    };
    if url != STORE_IN_BROKER {
        return aod_artifacts::open(url, &cache).map_err(|error| unusable(&error));
    }
    let bucket = BucketConfig {
        stream: "FILES".into(),
        bucket: "artifacts".into(),
        bytes_max: BUCKET_BYTES_MAX,
        replicas: arguments.nats_replicas.into(),
    };
    let store = broker.open_object_store(&bucket).await;
    let store = Arc::new(store.map_err(|error| unusable(&error))?);
    if kind != NODE {
        tokio::spawn(sweep_for_ever(Arc::clone(&store)));
    }
    let limited = Arc::clone(&store) as _;
    aod_artifacts::over(store, Some(limited), &cache).map_err(|error| unusable(&error))
}

/// Removes what uploads that were cut off have left; harmless however many programs do it.
async fn sweep_for_ever(store: Arc<JetStreamObjectStore>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        if let Err(error) = store.sweep(SWEEP_AGE_SECONDS_MIN).await {
            tracing::debug!(%error, "the artifacts were not swept");
        }
    }
}
