//! Speaks for runs with whichever gateway is there.
//!
//! A call is repeated on another gateway when the connection breaks, or when its gateway is no longer
//! present while another one is: its key makes that harmless.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_api::internal::{CallLine, CallRequest, CancelCall, Targets, WHITE_SPACE_SECONDS};
use aod_api::problem::Problem;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_ports::BoxError;
use aod_ports::gateways::{AnswerBody, GatewayTransport};
use aod_ports::presence::{Member, Presence};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::{Method, Request, Response, header};
use tokio::time::Instant;
use tracing::{debug, info};

/// How long an answer may be silent before its gateway counts as gone: two of its signs of life
/// and some time for a busy machine.
const SILENCE_MAX: Duration = Duration::from_secs(2 * WHITE_SPACE_SECONDS + 5);

/// How long the first line of an answer may take: the gateway reads, checks and stores meanwhile.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Between two tries when no gateway is there.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// How often it is looked whether the gateways that are asked are present: with [`PRESENCE_SECONDS`] and
/// a connection to another one it bounds what a gateway that hangs costs those who wait at it.
///
/// [`PRESENCE_SECONDS`]: aod_ports::presence::PRESENCE_SECONDS
const PRESENCE_EVERY: Duration = Duration::from_millis(500);

/// Longest refusal that is read, in bytes: its errors may be many, each a line.
const REFUSAL_BYTES_MAX: usize = 1024 * 1024;

/// Longest list of targets, in bytes: a schema of each capsule there is, 256 KiB at the most.
const TARGETS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Longest line of an answer, in bytes: a result event and its envelope fit twice.
const LINE_LENGTH_BYTES_MAX: usize = 128 * 1024;

/// A client of the gateways that are present.
#[derive(Debug)]
pub(crate) struct GatewayClient {
    presence: Arc<dyn Presence>,
    transport: Arc<dyn GatewayTransport>,
    /// The gateway that answered last.
    preferred: Mutex<Option<String>>,
    /// Where the gateways were that were present when it was last looked: one look for all who wait.
    seen: tokio::sync::Mutex<Option<(Instant, Vec<String>)>>,
}

/// As which run the node speaks.
#[derive(Clone, Debug)]
pub(crate) struct Speaker {
    pub(crate) run: RunId,
    pub(crate) attempt: u32,
    pub(crate) token: String,
}

/// Where a call waits for its callee.
struct Waiting {
    callee: RunId,
    url: String,
    since: Instant,
}

impl Waiting {
    /// The call waits at `url` now; answers where it did before, if that was elsewhere.
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

/// Why a request has no answer yet, sorted by what is done about it.
enum Failure {
    /// The gateway's answer, to be handed on.
    Refused(Box<Problem>),
    /// Try again, there or elsewhere.
    Again(String),
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

    /// Makes a call and waits for its end; `accepted` is told the callee as soon as it is stored.
    /// Ends only with an answer: whoever no longer wants it drops the future.
    pub(crate) async fn call(
        &self,
        speaker: &Speaker,
        request: &CallRequest,
        accepted: impl Fn(RunId) + Send + Sync,
    ) -> Result<CallLine, Box<Problem>> {
        let waiting = Mutex::new(None);
        let run = speaker.run;
        let answer = self
            .until_answered(|url| {
                let (accepted, waiting) = (&accepted, &waiting);
                async move {
                    let accepted = |callee| {
                        if let Some(left) = Waiting::begin(waiting, callee, &url) {
                            let (before, waited_ms) = (&left.url, left.milliseconds());
                            info!(%run, %callee, before, waited_ms, url, "a call goes on at another gateway");
                        }
                        accepted(callee);
                    };
                    let response = self.post(&url, speaker, "calls", request).await?;
                    read_lines(response, &accepted).await
                }
            })
            .await;
        if let Some(waiting) = lock(&waiting).take() {
            let (callee, url) = (waiting.callee, &waiting.url);
            let waited_ms = waiting.milliseconds();
            debug!(%run, %callee, url, waited_ms, "a call is answered");
        }
        answer
    }

    /// Asks for the end of a callee.
    pub(crate) async fn cancel(
        &self,
        speaker: &Speaker,
        callee: RunId,
        reason: &str,
    ) -> Result<(), Box<Problem>> {
        let body = CancelCall {
            attempt: speaker.attempt,
            reason: reason.to_owned(),
        };
        let path = format!("calls/{callee}/cancel");
        self.until_answered(|url| {
            let (body, path) = (&body, &path);
            async move { self.post(&url, speaker, path, body).await.map(drop) }
        })
        .await
    }

    /// Whom the run may call.
    pub(crate) async fn targets(&self, speaker: &Speaker) -> Result<Targets, Box<Problem>> {
        self.until_answered(|url| async move {
            let path = format!("targets?attempt={}", speaker.attempt);
            let response = self
                .send(Method::GET, &url, speaker, &path, Bytes::new())
                .await?;
            let whole = tokio::time::timeout(
                ACCEPT_TIMEOUT,
                collect(response.into_body(), TARGETS_BYTES_MAX),
            );
            let bytes = whole
                .await
                .map_err(|_| Failure::Again("no answer in time".into()))??;
            serde_json::from_slice(&bytes).map_err(|error| Failure::Again(error.to_string()))
        })
        .await
    }

    async fn post(
        &self,
        url: &str,
        speaker: &Speaker,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<Response<AnswerBody>, Failure> {
        let body = serde_json::to_vec(body).expect("a request is plain data");
        self.send(Method::POST, url, speaker, path, body.into())
            .await
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        speaker: &Speaker,
        path: &str,
        body: Bytes,
    ) -> Result<Response<AnswerBody>, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{url}/internal/v1/runs/{}/{path}", speaker.run))
            .header(header::AUTHORIZATION, format!("Bearer {}", speaker.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| Failure::Again(error.to_string()))?;
        let sent = tokio::time::timeout(ACCEPT_TIMEOUT, self.transport.send(request)).await;
        checked(sent.map_err(|_| Failure::Again("no answer in time".into()))?).await
    }

    async fn until_answered<T, F>(&self, attempt: impl Fn(String) -> F) -> Result<T, Box<Problem>>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        loop {
            for url in self.gateways().await {
                let answer = tokio::select! {
                    biased;
                    answer = attempt(url.clone()) => answer,
                    () = self.gone(&url) => Err(Failure::Again("it is not present".into())),
                };
                match answer {
                    Ok(answer) => {
                        self.prefer(Some(url));
                        return Ok(answer);
                    }
                    Err(Failure::Refused(problem)) => return Err(problem),
                    Err(Failure::Again(reason)) => debug!(url, reason, "a gateway did not answer"),
                }
            }
            if self.preferred().is_none() {
                tokio::time::sleep(RETRY_AFTER).await;
            }
            self.prefer(None);
        }
    }

    /// The gateway that answered last, or those that are present.
    async fn gateways(&self) -> Vec<String> {
        if let Some(url) = self.preferred() {
            return vec![url];
        }
        self.present().await.unwrap_or_default()
    }

    /// The gateways that are present; none if that cannot be known now.
    async fn present(&self) -> Option<Vec<String>> {
        let members = self.presence.members().await.ok()?;
        let urls = members.into_iter().filter_map(|member| match member {
            Member::Gateway(gateway) => Some(gateway.url),
            Member::Node(_) => None,
        });
        Some(urls.collect())
    }

    /// Returns when others are present and the gateway at `url` is not: it hangs, or is cut off.
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

    fn preferred(&self) -> Option<String> {
        lock(&self.preferred).clone()
    }

    fn prefer(&self, url: Option<String>) {
        *lock(&self.preferred) = url;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sorts answers: those of a gateway or proxy that cannot now are tried again, refusals, and bugs
/// that say so, are handed on.
async fn checked(
    sent: Result<Response<AnswerBody>, BoxError>,
) -> Result<Response<AnswerBody>, Failure> {
    let response = sent.map_err(|error| Failure::Again(error.to_string()))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    if matches!(status.as_u16(), 502..=504) {
        return Err(Failure::Again(format!("status {status}")));
    }
    let text = collect(response.into_body(), REFUSAL_BYTES_MAX).await?;
    let problem = serde_json::from_slice(&text).unwrap_or_else(|_| {
        Problem::new(
            ErrorCode::Internal,
            format!("a gateway answered {status} without a problem"),
        )
    });
    Err(Failure::Refused(Box::new(problem)))
}

/// The whole of a body of at most `bytes_max`.
async fn collect(body: AnswerBody, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let broken = |error: BoxError| Failure::Again(error.to_string());
    body.map_err(broken)
        .try_fold(Vec::new(), |mut whole, piece| async move {
            whole.extend_from_slice(&piece);
            if whole.len() > bytes_max {
                return Err(Failure::Again("the answer is too long".into()));
            }
            Ok(whole)
        })
        .await
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
            return Err(Failure::Again("the answer broke off".into()));
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
                    return Err(Failure::Again(format!(
                        "the answer cannot be read: {error}"
                    )));
                }
            }
        }
        if buffer.len() > LINE_LENGTH_BYTES_MAX {
            return Err(Failure::Again("a line of the answer is too long".into()));
        }
    }
}
