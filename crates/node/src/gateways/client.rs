//! Sends requests to any gateway that is present.
//!
//! The client repeats a request on another gateway when the connection breaks, or when presence no longer lists its
//! gateway but lists another one. The key of a call makes its repetition
//! harmless.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aod_api::problem::Problem;
use aod_domain::error_code::ErrorCode;
use aod_ports::BoxError;
use aod_ports::gateways::{AnswerBody, GatewayTransport};
use aod_ports::presence::{Member, Presence};
use bytes::Bytes;
use futures::TryStreamExt;
use http::{Request, Response};
use tokio::time::Instant;
use tracing::debug;

use crate::lock::lock;

/// How long the first line of an answer may take: the gateway reads, checks and stores the call first.
pub(super) const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause between two tries while no gateway is present.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// How often the client checks the presence of the gateways that it waits for. With [`PRESENCE_SECONDS`] and a
/// connection to another gateway, it bounds the delay that a hanging gateway causes.
///
/// [`PRESENCE_SECONDS`]: aod_ports::presence::PRESENCE_SECONDS
const PRESENCE_EVERY: Duration = Duration::from_millis(500);

/// Maximum size of a refusal, in bytes: it may have many errors, one a line.
const REFUSAL_BYTES_MAX: usize = 1024 * 1024;

/// A client of the present gateways.
#[derive(Debug)]
pub(crate) struct GatewayClient {
    presence: Arc<dyn Presence>,
    transport: Arc<dyn GatewayTransport>,
    /// The gateway that answered last.
    preferred: Mutex<Option<String>>,
    /// The URLs of the gateways at the last check of presence, which all waiting calls share.
    seen: tokio::sync::Mutex<Option<(Instant, Vec<String>)>>,
}

/// Why a request has no answer.
pub(super) enum Failure {
    /// The gateway refused it.
    Refused(Box<Problem>),
    /// Retry, on the same or another gateway.
    Again(String),
}

impl Failure {
    pub(super) fn again(reason: impl Into<BoxError>) -> Self {
        Self::Again(reason.into().to_string())
    }
}

impl GatewayClient {
    pub(crate) fn new(presence: Arc<dyn Presence>, transport: Arc<dyn GatewayTransport>) -> Self {
        Self {
            presence,
            transport,
            preferred: Mutex::new(None),
            seen: tokio::sync::Mutex::default(),
        }
    }

    /// Sends a request to the gateway in its URI; returns the head of the answer.
    pub(super) async fn send(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<AnswerBody>, Failure> {
        let sent = tokio::time::timeout(ACCEPT_TIMEOUT, self.transport.send(request)).await;
        checked(sent.map_err(|_| Failure::again("no answer in time"))?).await
    }

    /// The answer to `attempt`, which is repeated at each gateway, given by its URL, until one answers.
    pub(super) async fn until_answered<T, F>(
        &self,
        attempt: impl Fn(String) -> F,
    ) -> Result<T, Box<Problem>>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        loop {
            for url in self.gateways().await {
                let answer = tokio::select! {
                    biased;
                    answer = attempt(url.clone()) => answer,
                    () = self.gone(&url) => Err(Failure::again("the gateway is offline")),
                };
                match answer {
                    Ok(answer) => {
                        *lock(&self.preferred) = Some(url);
                        return Ok(answer);
                    }
                    Err(Failure::Refused(problem)) => return Err(problem),
                    Err(Failure::Again(reason)) => debug!(url, reason, "a gateway did not answer"),
                }
            }
            if lock(&self.preferred).is_none() {
                tokio::time::sleep(RETRY_AFTER).await;
            }
            *lock(&self.preferred) = None;
        }
    }

    /// The gateway that answered last, or else all present gateways.
    async fn gateways(&self) -> Vec<String> {
        let preferred = lock(&self.preferred).clone();
        if let Some(url) = preferred {
            return vec![url];
        }
        self.present().await.unwrap_or_default()
    }

    /// The present gateways; none if presence does not answer.
    async fn present(&self) -> Option<Vec<String>> {
        let members = self.presence.members().await.ok()?;
        let urls = members.into_iter().filter_map(|member| match member {
            Member::Gateway(gateway) => Some(gateway.url),
            Member::Node(_) => None,
        });
        Some(urls.collect())
    }

    /// Returns when other gateways are present and the gateway at `url` is not: it hangs, or is disconnected.
    async fn gone(&self, url: &str) {
        loop {
            tokio::time::sleep(PRESENCE_EVERY).await;
            let mut seen = self.seen.lock().await;
            let is_old = seen
                .as_ref()
                .is_none_or(|(at, _)| at.elapsed() >= PRESENCE_EVERY);
            if is_old && let Some(present) = self.present().await {
                *seen = Some((Instant::now(), present));
            }
            let present = seen
                .as_ref()
                .map_or(&[][..], |(_, present)| present.as_slice());
            if !present.is_empty() && !present.iter().any(|other| other == url) {
                return;
            }
        }
    }
}

/// Classifies an answer: a gateway or proxy that is unavailable leads to a retry; refusals and internal errors are
/// final.
async fn checked(
    sent: Result<Response<AnswerBody>, BoxError>,
) -> Result<Response<AnswerBody>, Failure> {
    let response = sent.map_err(Failure::again)?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    if matches!(status.as_u16(), 502..=504) {
        return Err(Failure::again(format!("status {status}")));
    }
    let text = collect(response.into_body(), REFUSAL_BYTES_MAX).await?;
    let problem = serde_json::from_slice(&text).unwrap_or_else(|_| {
        let text = format!("a gateway answered {status} without a problem document");
        Problem::new(ErrorCode::Internal, text)
    });
    Err(Failure::Refused(Box::new(problem)))
}

/// Reads a whole body of at most `bytes_max`.
pub(super) async fn collect(body: AnswerBody, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    body.map_err(Failure::again)
        .try_fold(Vec::new(), |mut whole, piece| async move {
            whole.extend_from_slice(&piece);
            if whole.len() > bytes_max {
                return Err(Failure::again("the answer is too long"));
            }
            Ok(whole)
        })
        .await
}
