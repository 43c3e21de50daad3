//! The requests of one run to the gateways: its calls of other runs, and what it may call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aod_api::internal::{CallLine, CallRequest, CancelCall, Targets, WHITE_SPACE_SECONDS};
use aod_api::problem::Problem;
use aod_domain::id::RunId;
use aod_ports::gateways::AnswerBody;
use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, header};
use tokio::time::Instant;
use tracing::{debug, info};

use super::client::{ACCEPT_TIMEOUT, Failure, GatewayClient, collect};
use crate::lock::lock;

/// How long an answer may be silent before its gateway counts as offline: two signs of life, and some time for a busy
/// machine.
const SILENCE_MAX: Duration = Duration::from_secs(2 * WHITE_SPACE_SECONDS + 5);

/// Maximum size of a list of targets, in bytes: a schema of at most 256 KiB for each capsule.
const TARGETS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum length of a line of an answer, in bytes: twice a result event with its envelope.
const LINE_LENGTH_BYTES_MAX: usize = 128 * 1024;

/// The run that the node speaks for.
#[derive(Clone, Debug)]
pub(crate) struct Speaker {
    pub(crate) gateways: Arc<GatewayClient>,
    pub(crate) run: RunId,
    pub(crate) attempt: u32,
    pub(crate) token: String,
}

impl Speaker {
    /// Makes a call and waits for its end; calls `accepted` as soon as the callee is stored. Returns only with an
    /// answer: to stop waiting, drop the future.
    pub(crate) async fn call(
        &self,
        request: &CallRequest,
        accepted: impl Fn(RunId) + Send + Sync,
    ) -> Result<CallLine, Box<Problem>> {
        let waiting = Mutex::new(None);
        let run = self.run;
        let answer = self
            .gateways
            .until_answered(|url| {
                let (accepted, waiting) = (&accepted, &waiting);
                async move {
                    let accepted = |callee| {
                        if let Some(left) = Waiting::begin(waiting, callee, &url) {
                            let (before, waited_ms) = (&left.url, left.milliseconds());
                            info!(%run, %callee, before, waited_ms, url, "a call continues at another gateway");
                        }
                        accepted(callee);
                    };
                    let response = self.post(&url, "calls", request).await?;
                    read_lines(response, &accepted).await
                }
            })
            .await;
        if let Some(waiting) = lock(&waiting).take() {
            let (callee, url) = (waiting.callee, &waiting.url);
            let waited_ms = waiting.milliseconds();
            debug!(%run, %callee, url, waited_ms, "a call was answered");
        }
        answer
    }

    /// Cancels a callee.
    pub(crate) async fn cancel(&self, callee: RunId, reason: &str) -> Result<(), Box<Problem>> {
        let body = CancelCall {
            attempt: self.attempt,
            reason: reason.to_owned(),
        };
        let path = format!("calls/{callee}/cancel");
        self.gateways
            .until_answered(|url| {
                let (body, path) = (&body, &path);
                async move { self.post(&url, path, body).await.map(drop) }
            })
            .await
    }

    /// The capsules that the run may call.
    pub(crate) async fn targets(&self) -> Result<Targets, Box<Problem>> {
        self.gateways
            .until_answered(|url| async move {
                let path = format!("targets?attempt={}", self.attempt);
                let response = self.send(Method::GET, &url, &path, Bytes::new()).await?;
                let whole = tokio::time::timeout(
                    ACCEPT_TIMEOUT,
                    collect(response.into_body(), TARGETS_BYTES_MAX),
                );
                let bytes = whole
                    .await
                    .map_err(|_| Failure::again("no answer in time"))??;
                serde_json::from_slice(&bytes).map_err(Failure::again)
            })
            .await
    }

    async fn post(
        &self,
        url: &str,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<Response<AnswerBody>, Failure> {
        let body = serde_json::to_vec(body).expect("a request is plain data");
        self.send(Method::POST, url, path, body.into()).await
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Response<AnswerBody>, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{url}/internal/v1/runs/{}/{path}", self.run))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(Failure::again)?;
        self.gateways.send(request).await
    }
}

/// A call that waits for its callee at a gateway.
struct Waiting {
    callee: RunId,
    url: String,
    since: Instant,
}

impl Waiting {
    /// Records that the call now waits at `url`; returns its previous gateway, if another.
    fn begin(waiting: &Mutex<Option<Self>>, callee: RunId, url: &str) -> Option<Self> {
        let mut waiting = lock(waiting);
        if waiting.as_ref().is_some_and(|waiting| waiting.url == url) {
            return None;
        }
        waiting.replace(Self {
            callee,
            url: url.to_owned(),
            since: Instant::now(),
        })
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

async fn read_lines(
    response: Response<AnswerBody>,
    accepted: &(impl Fn(RunId) + Sync),
) -> Result<CallLine, Failure> {
    let mut bytes = response.into_body();
    let mut buffer = Vec::new();
    loop {
        let next = tokio::time::timeout(SILENCE_MAX, bytes.next()).await;
        let Ok(Some(Ok(piece))) = next else {
            return Err(Failure::again("the answer broke off"));
        };
        buffer.extend_from_slice(&piece);
        while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice(&line) {
                Ok(CallLine::Accepted { run_id }) => accepted(run_id),
                Ok(ended @ CallLine::Ended { .. }) => return Ok(ended),
                Err(error) => {
                    let text = format!("the answer cannot be read: {error}");
                    return Err(Failure::Again(text));
                }
            }
        }
        if buffer.len() > LINE_LENGTH_BYTES_MAX {
            return Err(Failure::again("a line of the answer is too long"));
        }
    }
}
