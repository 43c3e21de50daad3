//! The HTTP client for a gateway.

mod connect;
mod events;
mod files;
mod lines;
mod run_ids;

pub(crate) use self::events::{Follow, parsed};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aod_api::problem::Problem;
use aod_api::{CONNECTION_REUSE_SECONDS_MAX, TENANT_HEADER};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::certificates::{hint_of_refusal, read_authority};

/// Maximum time to connect to a gateway.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Read timeout: longer than the 15 s between empty lines of streams, and than the wait for a result.
const SILENCE_PATIENCE: Duration = Duration::from_secs(90);

/// How long idempotent requests are retried if the gateway has answered before: it may be restarting, or a proxy may
/// switch to another one.
const RETRY_PATIENCE: Duration = Duration::from_secs(30);

/// How long requests are retried before the first answer: an address that never answers is probably wrong.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

/// The pause between retries.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The answer of a gateway with a certificate to plain HTTP.
const REQUIRES_TLS: &[u8] = b"this gateway requires TLS";

/// A gateway.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    /// Without a slash at the end.
    base: String,
    /// The hint for an unreachable gateway.
    hint: String,
    /// Whether a gateway or a proxy has answered; the clones of a client share it.
    has_answered: Arc<AtomicBool>,
}

/// The reason why a request has no usable answer.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// The gateway did not answer completely: it may have processed the request.
    Broken(Failure),
    /// The gateway rejected the request.
    Refused(Box<Problem>),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Broken(failure) => failure,
            ClientError::Refused(problem) => Self::refused(&problem),
        }
    }
}

impl ClientError {
    /// Whether a retry may succeed soon.
    fn is_passing(&self) -> bool {
        match self {
            Self::Broken(_) => true,
            Self::Refused(problem) => problem.status == StatusCode::SERVICE_UNAVAILABLE.as_u16(),
        }
    }
}

impl Client {
    /// `authority` is a PEM file of trusted authorities, instead of the system's.
    fn new(
        base: &str,
        token: Option<&str>,
        tenant: Option<&str>,
        hint: String,
        authority: Option<&Path>,
    ) -> Result<Self, Failure> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|error| {
                Failure::usage("the token is not a valid header").because(&error)
            })?;
            value.set_sensitive(true);
            headers.insert(reqwest::header::AUTHORIZATION, value);
        }
        if let Some(tenant) = tenant {
            let value = HeaderValue::from_str(tenant).map_err(|error| {
                Failure::usage("the tenant is not a valid header").because(&error)
            })?;
            headers.insert(TENANT_HEADER, value);
        }
        let mut builder = reqwest::Client::builder();
        if let Some(path) = authority {
            let trusted = reqwest::Certificate::from_pem_bundle(&read_authority(path)?);
            let trusted = trusted.map_err(|error| {
                Failure::usage(format!("{} is not a PEM file", path.display())).because(&error)
            })?;
            builder = builder.tls_certs_only(trusted);
        }
        let http = builder
            .default_headers(headers)
            .connect_timeout(CONNECT_PATIENCE)
            .pool_idle_timeout(Duration::from_secs(CONNECTION_REUSE_SECONDS_MAX))
            .read_timeout(SILENCE_PATIENCE)
            .user_agent(concat!("aod/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| {
                Failure::new(Exit::Internal, "cannot create the HTTP client").because(&error)
            })?;
        Ok(Self {
            http,
            base: base.trim_end_matches('/').to_owned(),
            hint,
            has_answered: Arc::default(),
        })
    }

    /// The gateway's address.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    /// Sends a request; a status other than success becomes an error.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|error| self.broken(&error))?;
        self.has_answered.store(true, Ordering::Relaxed);
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = response
            .bytes()
            .await
            .map_err(|error| self.broken(&error))?;
        match serde_json::from_slice(&bytes) {
            Ok(problem) => Err(ClientError::Refused(Box::new(problem))),
            // The answer is from a proxy, or from a server that is not a gateway.
            Err(_)
                if status == StatusCode::BAD_GATEWAY || status == StatusCode::GATEWAY_TIMEOUT =>
            {
                Err(ClientError::Broken(
                    self.unreachable(&format!("{status} from a proxy")),
                ))
            }
            Err(_) if bytes.starts_with(REQUIRES_TLS) => Err(ClientError::Broken(
                self.unreachable("it requires TLS")
                    .with_hint("use https:// in its address"),
            )),
            Err(_) => Err(ClientError::Broken(self.unreachable(&format!(
                "status {status} without a problem document: this server is probably not a gateway"
            )))),
        }
    }

    fn broken(&self, error: &reqwest::Error) -> ClientError {
        let failure = Failure::new(
            Exit::Unreachable,
            format!("the gateway at {} cannot be reached", self.base),
        );
        // The texts above the cause repeat that a connection to this address has failed.
        let failure = failure.because(cause(error));
        let hint = hint_of_refusal(failure.message()).map_or(self.hint.clone(), str::to_owned);
        ClientError::Broken(failure.with_hint(hint))
    }

    fn unreachable(&self, why: &str) -> Failure {
        Failure::new(
            Exit::Unreachable,
            format!("the gateway at {} cannot be reached: {why}", self.base),
        )
        .with_hint(self.hint.clone())
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T, ClientError> {
        let bytes = response
            .bytes()
            .await
            .map_err(|error| self.broken(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let failure = Failure::new(
                Exit::Internal,
                format!("the answer of {} cannot be read", self.base),
            );
            ClientError::Broken(
                failure
                    .because(&error)
                    .with_hint("use the same version of gateway and `aod`"),
            )
        })
    }

    /// Reads `path`, once.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<T, ClientError> {
        let path = with_query(path, query);
        let response = self.send(self.request(Method::GET, &path)).await?;
        self.read(response).await
    }

    /// Reads `path`, with retries while the gateway is unavailable; also returns the status.
    pub(crate) async fn get_patiently<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(StatusCode, T), ClientError> {
        self.patiently(async || {
            let response = self.send(self.request(Method::GET, path)).await?;
            Ok((response.status(), self.read(response).await?))
        })
        .await
    }

    /// Posts JSON, once.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let response = self
            .send(self.request(Method::POST, path).json(body))
            .await?;
        self.read(response).await
    }

    pub(crate) async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let response = self
            .send(self.request(Method::PUT, path).json(body))
            .await?;
        self.read(response).await
    }

    /// Deletes `path`; the answer has no body.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, path)).await?;
        Ok(())
    }

    /// Posts JSON with an idempotency key, with retries while the gateway is unavailable.
    pub(crate) async fn post_patiently<T: DeserializeOwned>(
        &self,
        path: &str,
        key: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.patiently(async || {
            let request = self
                .request(Method::POST, path)
                .header(aod_api::IDEMPOTENCY_KEY_HEADER, key)
                .json(body);
            let response = self.send(request).await?;
            self.read(response).await
        })
        .await
    }

    /// Posts `file` as a stream; returns status and body.
    pub(crate) async fn post_file(
        &self,
        path: &str,
        query: &[(&str, String)],
        headers: &[(HeaderName, &str)],
        file: &Path,
    ) -> Result<(StatusCode, serde_json::Value), ClientError> {
        let body = files::body(file).await.map_err(ClientError::Broken)?;
        let mut request = self
            .request(Method::POST, &with_query(path, query))
            .body(body);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let response = self.send(request).await?;
        Ok((response.status(), self.read(response).await?))
    }

    fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// How long a failure may last before it is final.
    fn patience(&self) -> Duration {
        if self.has_answered() {
            RETRY_PATIENCE
        } else {
            FIRST_PATIENCE
        }
    }

    /// Retries `work` until it succeeds, fails permanently, or the retry time is over.
    async fn patiently<T>(
        &self,
        mut work: impl AsyncFnMut() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let start = Instant::now();
        loop {
            match work().await {
                Err(error) if error.is_passing() && start.elapsed() < self.patience() => {
                    sleep(RETRY_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }
}

/// The first cause of `error`.
fn cause(error: &reqwest::Error) -> &(dyn std::error::Error + 'static) {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

/// `path` with query parameters.
pub(crate) fn with_query(path: &str, query: &[(&str, String)]) -> String {
    let mut text = path.to_owned();
    for (index, (name, value)) in query.iter().enumerate() {
        text.push(if index == 0 { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        text.push_str(&encoded(value));
    }
    text
}

/// `text` as one part of a path, or as a value of a query.
pub(crate) fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// A file to upload: its name for the run, and its path on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upload {
    pub(crate) name: aod_domain::file_name::FileName,
    pub(crate) path: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_url_characters_are_escaped() {
        assert_eq!(encoded("a b/ü?&"), "a%20b%2F%C3%BC%3F%26");
        let query = [("state", "failed".to_owned()), ("text", "a&b".to_owned())];
        assert_eq!(
            with_query("/v1/runs", &query),
            "/v1/runs?state=failed&text=a%26b"
        );
    }
}
