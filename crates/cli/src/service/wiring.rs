//! Opens the broker and the artifact store that flags select, as ports for gateways and nodes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aod_artifacts::{CacheConfig, Opened};
use aod_domain::id::NodeId;
use aod_jetstream::object_store::{BucketConfig, JetStreamObjectStore, SWEEP_AGE_SECONDS_MIN};
use aod_jetstream::{Broker, Config, ConnectError, Credentials, StreamError};
use aod_ports::peers::Peers;

use super::certificates::hint_of_refusal;
use crate::arguments::BrokerArguments;
use crate::failure::Failure;

/// The kinds of programs. A node has no right to create streams.
pub const GATEWAY: &str = "gateway";
pub const NODE: &str = "node";

/// The value of `--store` for artifacts in the broker.
const STORE_IN_BROKER: &str = "jetstream";

/// Maximum size of all artifacts in the broker, in bytes. With the log, the queue and the live logs (8 GiB), the sum is
/// below the 20 GiB of JetStream in AOD's configurations of nats-server.
const BUCKET_BYTES_MAX: u64 = 10 << 30;

/// Interval of the removal of incomplete uploads, which only use space.
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);

/// Connects as a program of the kind `kind`: [`GATEWAY`] or [`NODE`].
pub async fn connect(arguments: &BrokerArguments, kind: &str) -> Result<Broker, Failure> {
    let credentials = match &arguments.nats_credentials {
        None => Credentials::None,
        Some(path) => Credentials::from_file(path).map_err(|error| {
            Failure::usage("cannot use the file of --nats-credentials").because(&error)
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
        let failure = Failure::environment("cannot use the broker").because(&error);
        if let Some(hint) = hint_of_refusal(failure.message()) {
            return failure.with_hint(hint);
        }
        if failure.message().contains("may not publish") {
            return failure.with_hint(
                "pass --nats-credentials nats-gateway.creds to a gateway, nats-node.creds to a node",
            );
        }
        let hint = match &error {
            ConnectError::Unreachable { .. } => {
                "check that nats-server runs at the address of --nats"
            }
            ConnectError::Refused { .. } => {
                "check that --nats-credentials contains a user of that server"
            }
            ConnectError::Stream(StreamError::Missing { .. }) => "start a gateway first",
            ConnectError::Stream(StreamError::Mismatch { .. }) => {
                "start a gateway once with nats-admin.creds, which has the right to change streams"
            }
            ConnectError::TooOld { .. } | ConnectError::Stream(_) => "`aod doctor` shows details",
        };
        failure.with_hint(hint)
    })
}

/// Opens the way to the other nodes for `node`; none if the store is a directory, which has no cache to serve from.
pub async fn peers(
    arguments: &BrokerArguments,
    broker: &Broker,
    node: NodeId,
) -> Result<Option<Arc<dyn Peers>>, Failure> {
    if arguments.store.starts_with("file:") {
        return Ok(None);
    }
    let peers = broker.open_peers(node).await;
    let peers = peers.map_err(|error| {
        Failure::environment("cannot connect to the broker for transfers between nodes")
            .because(&*error)
    })?;
    Ok(Some(Arc::new(peers)))
}

/// Opens the artifact store for a program of the kind `kind`; a node fetches images from its `peers`, too. No other process
/// may use the directory `cache`.
pub async fn artifacts(
    arguments: &BrokerArguments,
    broker: &Broker,
    kind: &str,
    cache: &Path,
    peers: Option<Arc<dyn Peers>>,
) -> Result<Opened, Failure> {
    let cache = CacheConfig {
        directory: cache.to_owned(),
        bytes_max: arguments.cache_bytes,
    };
    let url = &arguments.store;
    let unusable = |error: &(dyn std::error::Error + 'static)| {
        Failure::environment(format!("cannot use the artifact store `{url}`")).because(error)
    };
    if url != STORE_IN_BROKER {
        return aod_artifacts::open_among(url, &cache, peers).map_err(|error| unusable(&error));
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
        tokio::spawn(sweep_forever(Arc::clone(&store)));
    }
    let limited = Arc::clone(&store) as _;
    let opened = aod_artifacts::over_among(store, Some(limited), &cache, peers);
    opened.map_err(|error| unusable(&error))
}

/// Removes incomplete uploads; several programs may do so concurrently.
async fn sweep_forever(store: Arc<JetStreamObjectStore>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        if let Err(error) = store.sweep(SWEEP_AGE_SECONDS_MIN).await {
            tracing::debug!(%error, "cannot remove incomplete uploads");
        }
    }
}
