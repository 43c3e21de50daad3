//! The live tail of outputs on the stream `LOGS`: bounded, not synced, one message for each line.

use std::time::Duration;

use aod_domain::id::RunId;
use aod_ports::BoxError;
use aod_ports::log_stream::{LogLine, LogStream, LogStreamError};
use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::time::timeout;

use crate::ANSWER_SECONDS_MAX;
use crate::link::Link;
use crate::streams::{LOG_LINE_BYTES_MAX, LOG_PREFIX, LOGS};
use crate::tail::{Arrival, Tail};

/// Maximum number of unconfirmed lines: at 0.1 ms each enough for 10,000 a second. Above it a publisher
/// waits.
const UNCONFIRMED_MAX: usize = 1_000;

/// The stream of logs, on one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JetStreamLogStream {
    link: Link,
    /// A context with its own window of unconfirmed lines, so that output never delays events.
    context: Context,
}

impl JetStreamLogStream {
    pub(crate) fn new(link: Link) -> Self {
        let context = ContextBuilder::new()
            .timeout(Duration::from_secs(ANSWER_SECONDS_MAX))
            .ack_timeout(Duration::from_secs(ANSWER_SECONDS_MAX))
            .max_ack_inflight(UNCONFIRMED_MAX)
            .backpressure_on_inflight(true)
            .build(link.client.clone());
        Self { link, context }
    }

    async fn send(&self, run: RunId, lines: &[LogLine]) -> Result<(), BoxError> {
        for line in lines {
            let bytes = serde_json::to_vec(line)?;
            if bytes.len() > LOG_LINE_BYTES_MAX {
                let size_bytes = bytes.len();
                return Err(format!("a line of {size_bytes} bytes is too long").into());
            }
            // The context waits for the confirmation, which frees the window.
            self.context
                .publish(subject(run, &line.attempt.to_string()), bytes.into())
                .await?;
        }
        Ok(())
    }
}

/// The tenant in the subjects of all lines; the events of a run name its actual tenant.
const TENANT: &str = "default";

fn subject(run: RunId, attempt: &str) -> String {
    format!(
        "{LOG_PREFIX}.{TENANT}.{}.{}.{attempt}",
        run.root().token(),
        run.token()
    )
}

fn error(source: impl Into<BoxError>) -> LogStreamError {
    LogStreamError(source.into())
}

#[async_trait]
impl LogStream for JetStreamLogStream {
    async fn publish(&self, run: RunId, lines: &[LogLine]) -> Result<(), LogStreamError> {
        let patience = Duration::from_secs(ANSWER_SECONDS_MAX);
        timeout(patience, self.send(run, lines))
            .await
            .map_err(error)?
            .map_err(error)
    }

    async fn follow(
        &self,
        run: RunId,
        after: u64,
    ) -> Result<BoxStream<'static, (u64, LogLine)>, LogStreamError> {
        let tail = Tail::open(&self.link, LOGS, &subject(run, "*"), after)
            .await
            .map_err(error)?;
        let lines = stream::unfold(tail, |mut tail| async {
            loop {
                let Arrival::Message { sequence, message } = tail.next().await else {
                    continue;
                };
                match serde_json::from_slice(&message.payload) {
                    Ok(line) => return Some(((sequence, line), tail)),
                    Err(error) => {
                        tracing::warn!(sequence, %error, "a line of output cannot be read");
                    }
                }
            }
        });
        Ok(lines.boxed())
    }
}
