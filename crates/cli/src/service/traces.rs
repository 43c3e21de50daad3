//! The export of traces, if the operator enables it.

use std::sync::Arc;

use aod_archive::ArchivedLog;
use aod_jetstream::Broker;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::{Clock, SystemClock};
use aod_traces::{Exporter, Receiver};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::data;
use crate::arguments::TraceArguments;
use crate::failure::Failure;

/// The name of the feed of results that all gateways of a cluster share.
const FEED: &str = "traces";

/// The export of traces; ends when dropped.
#[derive(Debug)]
pub struct Traces {
    _stop: DropGuard,
}

impl Traces {
    /// Starts the export; none without `--otlp`.
    pub(super) async fn begin(
        arguments: &TraceArguments,
        broker: &Broker,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<Option<Self>, Failure> {
        let Some(address) = &arguments.otlp else {
            return Ok(None);
        };
        let headers = match &arguments.otlp_headers {
            Some(path) => {
                std::fs::read_to_string(path).map_err(|error| data::unusable(path, &error))?
            }
            None => String::new(),
        };
        let receiver = Receiver::new(address, &headers)
            .map_err(|error| Failure::usage("invalid receiver of traces").because(&error))?;
        let feed = broker.feed(FEED).await.map_err(|error| {
            Failure::environment("cannot follow the results of runs in the broker")
                .because(error.as_ref())
        })?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let log = Arc::new(broker.event_log());
        // The events of a delayed trace may be archived.
        let log = ArchivedLog::new(log, Arc::clone(artifacts), Arc::clone(&clock));
        let exporter = Exporter {
            feed: Arc::new(feed),
            log: Arc::new(log),
            clock,
            receiver,
            contents: arguments.otlp_contents.then(|| Arc::clone(artifacts)),
        };
        let stop = CancellationToken::new();
        tokio::spawn(exporter.run(stop.clone()));
        Ok(Some(Self {
            _stop: stop.drop_guard(),
        }))
    }
}
