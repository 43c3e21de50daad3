//! HTTP to a gateway: which one, with which token, and what its refusals mean.

mod connect;
mod events;
mod files;
mod lines;

pub(crate) use self::events::parsed;

use std::path::{Path, PathBuf};
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

/// How long a gateway may take until a connection stands.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Silence after which an answer is given up, longer than the 15 s after which streams send a sign
/// of life, and than the waiting that is asked for.
const SILENCE_PATIENCE: Duration = Duration::from_secs(90);

/// How long a gateway that is gone is tried again, when nothing happens twice by that: it may be
/// starting, or another one takes over behind a proxy.
const RETRY_PATIENCE: Duration = Duration::from_secs(30);

/// The pause between such tries.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// What a gateway with a certificate tells whoever speaks plain HTTP.
const SPEAKS_TLS: &[u8] = b"this gateway speaks TLS";

/// A gateway.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    /// Without a slash at the end.
    base: String,
    /// What to try when it cannot be reached.
    hint: String,
}

/// Why a request has no answer that can be used.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// The gateway did not answer, or broke off: what was asked may have happened.
    Broken(Failure),
    /// It said no.
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
    /// Whether the same request may succeed in a moment.
    fn is_passing(&self) -> bool {
        match self {
            Self::Broken(_) => true,
            Self::Refused(problem) => problem.status == StatusCode::SERVICE_UNAVAILABLE.as_u16(),
        }
    }
}

impl Client {
    /// `authority` is a PEM file of what is trusted instead of what the system trusts.
    fn new(
        base: &str,
        token: Option<&str>,
        tenant: Option<&str>,
        hint: String,
        authority: Option<&Path>,
    ) -> Result<Self, Failure> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|error| Failure::usage("the token cannot be sent").because(&error))?;
            value.set_sensitive(true);
            headers.insert(reqwest::header::AUTHORIZATION, value);
        }
        if let Some(tenant) = tenant {
            let value = HeaderValue::from_str(tenant)
                .map_err(|error| Failure::usage("the tenant cannot be sent").because(&error))?;
            headers.insert(TENANT_HEADER, value);
        }
        let mut builder = reqwest::Client::builder();
        if let Some(path) = authority {
            let trusted = reqwest::Certificate::from_pem_bundle(&read_authority(path)?);
            let trusted = trusted.map_err(|error| {
                Failure::usage(format!("{} cannot be used", path.display())).because(&error)
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
                Failure::new(Exit::Internal, "there is no HTTP client").because(&error)
            })?;
        Ok(Self {
            http,
            base: base.trim_end_matches('/').to_owned(),
            hint,
        })
    }

    /// The gateway's address.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    /// Sends a request; answers that are no success are refusals.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|error| self.broken(&error))?;
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
            // A proxy in between, or something that is no gateway at all.
            Err(_)
                if status == StatusCode::BAD_GATEWAY || status == StatusCode::GATEWAY_TIMEOUT =>
            {
                Err(ClientError::Broken(
                    self.unreachable(&format!("{status} from a proxy")),
                ))
            }
            Err(_) if bytes.starts_with(SPEAKS_TLS) => Err(ClientError::Broken(
                self.unreachable("it speaks TLS")
                    .with_hint("use https:// in its address"),
            )),
            Err(_) => Err(ClientError::Broken(
                self.unreachable(&format!("{status}, which is no answer of a gateway")),
            )),
        }
    }

    fn broken(&self, error: &reqwest::Error) -> ClientError {
        let failure = Failure::new(
            Exit::Unreachable,
            format!("the gateway at {} cannot be reached", self.base),
        );
        // The library's own text repeats the address.
        let failure = match std::error::Error::source(error) {
            Some(source) => failure.because(source),
            None => failure.because(error),
        };
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
                    .with_hint("gateway and `aod` should be of one version"),
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

    /// Reads `path`, again and again while the gateway is gone; answers the status with it.
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

    /// The answer has no body.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, path)).await?;
        Ok(())
    }

    /// Posts JSON under a key, by which nothing happens twice, so again and again while the gateway
    /// is gone.
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

    /// Posts the file at `path`, streamed; answers the status with the body, to be read by status.
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

    /// Does what can be repeated until it works out, or the patience ends.
    async fn patiently<T>(
        &self,
        mut work: impl AsyncFnMut() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let deadline = Instant::now() + RETRY_PATIENCE;
        loop {
            match work().await {
                Err(error) if error.is_passing() && Instant::now() < deadline => {
                    sleep(RETRY_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }
}

/// `path` with its parameters.
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

/// A file to be handed over: its name there, its path here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upload {
    pub(crate) name: aod_domain::file_name::FileName,
    pub(crate) path: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_has_a_meaning_in_a_url_is_escaped() {
        assert_eq!(encoded("a b/ü?&"), "a%20b%2F%C3%BC%3F%26");
        let query = [("state", "failed".to_owned()), ("text", "a&b".to_owned())];
        assert_eq!(
            with_query("/v1/runs", &query),
            "/v1/runs?state=failed&text=a%26b"
        );
    }
}
