//! A client of registries: the OCI distribution API over HTTPS, and over HTTP for loopback addresses only.
//!
//! It reads manifests and configurations, each with a bound and verified, and sends whole images. Layers are pulled by
//! the engine, which verifies them too.
//!
//! Source of the API: OCI distribution specification 1.1.

pub mod authorization;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_domain::capsule::Blob;
use aod_domain::digest::Digest;
use aod_ports::artifact_store::LocalFile;
use futures::TryStreamExt as _;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reqwest::{Body, Certificate, Client, RequestBuilder, Response, Url};
use serde::Deserialize;
use tokio_util::io::ReaderStream;

use self::authorization::{Challenge, Credentials};
use crate::exchange::{ExchangeError, Found, Parts, Source, check_size, find};
use crate::index::{DOCKER_INDEX, OCI_INDEX};
use crate::manifest::{CONFIG_BYTES_MAX, DOCKER_MANIFEST, MANIFEST_BYTES_MAX, OCI_MANIFEST};
use crate::reference::{Reference, is_loopback};

/// Maximum time to connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum time for one request without a layer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// Maximum time in which no byte of a layer moves: registries copy a complete layer before they answer.
const SILENCE_SECONDS_MAX: u64 = 300;

/// Pause between two lines of progress.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Maximum size of an answer with an error or a token, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 * 1_024;

/// Maximum length of a quoted message of a registry, in characters.
const MESSAGE_LENGTH_MAX: usize = 300;

/// Size of the pieces of a layer, in bytes.
const PIECE_BYTES: usize = 256 * 1_024;

const MEBIBYTE: u64 = 1 << 20;

/// Where Docker has the private authorities of registries. Source: Docker's documentation, "Verify repository client
/// with certificates".
const AUTHORITIES: &str = "/etc/docker/certs.d";

/// An image in a registry, for one exchange.
#[derive(Debug)]
pub struct Remote {
    http: Client,
    reference: Reference,
    root: Url,
    credentials: Option<Credentials>,
    /// The rights that it asks for, as in `pull,push`.
    actions: &'static str,
    /// The header of requests to the registry, once the registry has asked for one.
    authorization: Mutex<Option<HeaderValue>>,
}

/// The body of a refusal. Source: OCI distribution specification 1.1, "Error Codes".
#[derive(Deserialize)]
struct Refusal {
    errors: Vec<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Remote {
    /// A client for pulls of this image.
    pub fn for_pull(
        reference: Reference,
        credentials: Option<Credentials>,
    ) -> Result<Self, ExchangeError> {
        Self::new(reference, credentials, "pull")
    }

    /// A client for pushes of this image.
    pub fn for_push(
        reference: Reference,
        credentials: Option<Credentials>,
    ) -> Result<Self, ExchangeError> {
        Self::new(reference, credentials, "pull,push")
    }

    fn new(
        reference: Reference,
        credentials: Option<Credentials>,
        actions: &'static str,
    ) -> Result<Self, ExchangeError> {
        let root = reference.address().expect("a parsed reference has a host");
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_PATIENCE)
            .user_agent(concat!("aod/", env!("CARGO_PKG_VERSION")));
        builder = if is_loopback(&root) {
            builder.no_proxy()
        } else {
            // A redirect must not lead to plain HTTP.
            let trusted = authorities(&Path::new(AUTHORITIES).join(reference.registry()));
            builder.https_only(true).tls_certs_merge(trusted)
        };
        let http = builder
            .build()
            .map_err(|source| ExchangeError::Unreachable {
                registry: reference.registry().to_owned(),
                source,
            })?;
        Ok(Self {
            http,
            reference,
            root,
            credentials,
            actions,
            authorization: Mutex::default(),
        })
    }

    /// Checks that the registry answers and accepts the credentials.
    pub async fn check(&self) -> Result<(), ExchangeError> {
        let response = self
            .send(|| self.request(Method::GET, self.url("/v2/")))
            .await?;
        self.expect_success(response).await.map(drop)
    }

    /// Finds the image of the reference.
    pub async fn find(&self) -> Result<Found, ExchangeError> {
        find(self).await
    }

    /// Sends the parts that the registry lacks, then the manifest. Returns the digest of the manifest.
    pub async fn push(
        &self,
        parts: &Parts,
        progress: &(dyn Fn(String) + Sync),
    ) -> Result<Digest, ExchangeError> {
        let all = parts.files.len();
        for (number, file) in parts.files.iter().enumerate() {
            let name = format!("part {} of {all}", number + 1);
            if self.has(file).await? {
                progress(format!("{name}: already there"));
            } else {
                self.upload(file, &|text| progress(format!("{name}: {text}")))
                    .await?;
            }
        }
        let url = self.path(&format!("manifests/{}", self.reference.tag));
        let put = || {
            self.request(Method::PUT, url.clone())
                .header(CONTENT_TYPE, OCI_MANIFEST)
                .body(parts.manifest.clone())
        };
        let response = self.send(put).await?;
        self.expect_success(response).await?;
        Ok(parts.digest())
    }

    /// Whether the registry has the blob in its size.
    async fn has(&self, file: &LocalFile) -> Result<bool, ExchangeError> {
        let url = self.path(&format!("blobs/sha256:{}", file.digest()));
        let response = self
            .send(|| self.request(Method::HEAD, url.clone()))
            .await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        let response = self.expect_success(response).await?;
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        Ok(length.is_none_or(|length: u64| length == file.size_bytes()))
    }

    /// Sends a blob: begins an upload, and ends it with all bytes.
    async fn upload(
        &self,
        file: &LocalFile,
        progress: &(dyn Fn(String) + Sync),
    ) -> Result<(), ExchangeError> {
        let url = self.path("blobs/uploads/");
        let begin = || {
            self.request(Method::POST, url.clone())
                .header(CONTENT_LENGTH, 0)
        };
        let begun = self.send(begin).await?;
        let begun = self.expect_success(begun).await?;
        let location = begun.headers().get(LOCATION);
        let location = location.and_then(|text| begun.url().join(text.to_str().ok()?).ok());
        let mut target = location.ok_or_else(|| self.answered(&begun, "no place for an upload"))?;
        target
            .query_pairs_mut()
            .append_pair("digest", &format!("sha256:{}", file.digest()));
        let opened = tokio::fs::File::open(file.path()).await;
        let opened = opened.map_err(|source| ExchangeError::Disk {
            path: file.path().to_owned(),
            action: "read",
            source,
        })?;
        let sent = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&sent);
        let pieces = ReaderStream::with_capacity(opened, PIECE_BYTES).inspect_ok(move |piece| {
            counter.fetch_add(piece.len() as u64, Ordering::Relaxed);
        });
        let put = self
            .request(Method::PUT, target)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, file.size_bytes())
            .body(Body::wrap_stream(pieces));
        let response = self
            .watched(put, &sent, file.size_bytes(), progress)
            .await?;
        self.expect_success(response).await.map(drop)
    }

    /// Waits for the answer to an upload as long as bytes move.
    async fn watched(
        &self,
        request: RequestBuilder,
        sent: &AtomicU64,
        size_bytes: u64,
        progress: &(dyn Fn(String) + Sync),
    ) -> Result<Response, ExchangeError> {
        let mebibytes = |bytes: u64| bytes.div_ceil(MEBIBYTE);
        let mut answer = std::pin::pin!(request.send());
        let (mut last, mut silent_seconds) = (0, 0);
        loop {
            if let Ok(answer) = tokio::time::timeout(REPORT_EVERY, answer.as_mut()).await {
                let answer = answer.map_err(|source| self.unreachable(source))?;
                progress(format!("sent {} MiB", mebibytes(size_bytes)));
                return Ok(answer);
            }
            let now = sent.load(Ordering::Relaxed);
            silent_seconds = if now == last { silent_seconds + 1 } else { 0 };
            if silent_seconds >= SILENCE_SECONDS_MAX {
                return Err(self.silent(SILENCE_SECONDS_MAX));
            }
            last = now;
            let (now, all) = (mebibytes(now), mebibytes(size_bytes));
            progress(format!("sending, {now} of {all} MiB"));
        }
    }

    fn url(&self, path: &str) -> Url {
        self.root
            .join(path)
            .expect("names of images are parts of addresses")
    }

    /// The address of a part of the repository.
    fn path(&self, path: &str) -> Url {
        self.url(&format!("/v2/{}/{path}", self.reference.repository))
    }

    /// A request; only the registry itself gets the authorization, not the host of its storage.
    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let is_own = url.origin() == self.root.origin();
        let request = self.http.request(method, url);
        let authorization = self.authorization();
        match authorization.as_ref().filter(|_| is_own) {
            Some(authorization) => request.header(AUTHORIZATION, authorization.clone()),
            None => request,
        }
    }

    fn authorization(&self) -> std::sync::MutexGuard<'_, Option<HeaderValue>> {
        self.authorization
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request; a second time if the registry asks for an authorization, or for a newer one.
    async fn send(&self, request: impl Fn() -> RequestBuilder) -> Result<Response, ExchangeError> {
        let response = self.send_once(request()).await?;
        // A host to which the registry redirects may not ask for the password.
        let is_own = response.url().origin() == self.root.origin();
        if response.status() != StatusCode::UNAUTHORIZED || !is_own {
            return Ok(response);
        }
        let Some(challenge) = challenge_in(response.headers()) else {
            return Ok(response);
        };
        let Some(authorization) = self.authorize(&challenge).await? else {
            return Ok(response);
        };
        *self.authorization() = Some(authorization);
        self.send_once(request()).await
    }

    async fn send_once(&self, request: RequestBuilder) -> Result<Response, ExchangeError> {
        match tokio::time::timeout(ANSWER_PATIENCE, request.send()).await {
            Ok(answer) => answer.map_err(|source| self.unreachable(source)),
            Err(_) => Err(self.silent(ANSWER_PATIENCE.as_secs())),
        }
    }

    /// The header that answers a challenge; none without the necessary credentials.
    async fn authorize(&self, challenge: &Challenge) -> Result<Option<HeaderValue>, ExchangeError> {
        let (realm, service) = match challenge {
            Challenge::Basic => return Ok(self.credentials.as_ref().map(Credentials::basic)),
            Challenge::Bearer { realm, service } => (realm, service),
        };
        // The credentials of people go over TLS only; `https_only` does not cover registries on loopback.
        if realm.scheme() != "https" && !is_loopback(realm) {
            return Ok(None);
        }
        let (repository, actions) = (&self.reference.repository, self.actions);
        let mut url = realm.clone();
        url.query_pairs_mut()
            .append_pair("scope", &format!("repository:{repository}:{actions}"))
            .extend_pairs(service.iter().map(|service| ("service", service)));
        let request = self.http.get(url);
        let request = match &self.credentials {
            Some(credentials) => request.header(AUTHORIZATION, credentials.basic()),
            None => request,
        };
        let response = self.send_once(request).await?;
        let response = self.expect_success(response).await?;
        let place = self.answered(&response, "no token");
        let answer = self.read(response, ANSWER_BYTES_MAX).await?;
        let answer = answer.and_then(|answer| authorization::bearer(&answer));
        answer.map(Some).ok_or(place)
    }

    async fn expect_success(&self, response: Response) -> Result<Response, ExchangeError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = self.read(response, ANSWER_BYTES_MAX).await?;
        let text = text.unwrap_or_default();
        let message = message_in(&text).unwrap_or_else(|| "no explanation".to_owned());
        let registry = self.reference.registry().to_owned();
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ExchangeError::Denied {
                registry,
                repository: self.reference.repository.clone(),
                status: status.as_u16(),
                reason: match self.credentials {
                    Some(_) => message,
                    None => format!("{message}; no basic auth credentials"),
                },
            },
            _ => ExchangeError::Answered {
                registry,
                status: status.as_u16(),
                message,
            },
        })
    }

    /// The body of a response; none if it has more than `bytes_max`.
    async fn read(
        &self,
        mut response: Response,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, ExchangeError> {
        let reading = async {
            let mut bytes = Vec::new();
            while let Some(piece) = response.chunk().await? {
                if (bytes.len() + piece.len()) as u64 > bytes_max {
                    return Ok(None);
                }
                bytes.extend_from_slice(&piece);
            }
            Ok(Some(bytes))
        };
        match tokio::time::timeout(ANSWER_PATIENCE, reading).await {
            Ok(read) => read.map_err(|source| self.unreachable(source)),
            Err(_) => Err(self.silent(ANSWER_PATIENCE.as_secs())),
        }
    }

    /// Gets a document of the repository.
    async fn get(&self, path: &str, bytes_max: u64) -> Result<Vec<u8>, ExchangeError> {
        let url = self.path(path);
        let get = || {
            let mut accept = HeaderMap::new();
            for kind in [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX] {
                accept.append(ACCEPT, HeaderValue::from_static(kind));
            }
            self.request(Method::GET, url.clone()).headers(accept)
        };
        let response = self.send(get).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Err(ExchangeError::Missing {
                place: self.place(),
                what: format!("no {path}"),
                tags: Vec::new(),
            });
        }
        let response = self.expect_success(response).await?;
        let too_large = self.answered(
            &response,
            &format!("more than {bytes_max} bytes for {path}"),
        );
        self.read(response, bytes_max).await?.ok_or(too_large)
    }

    fn unreachable(&self, source: reqwest::Error) -> ExchangeError {
        ExchangeError::Unreachable {
            registry: self.reference.registry().to_owned(),
            // The address may contain the secret of an upload.
            source: source.without_url(),
        }
    }

    fn silent(&self, seconds: u64) -> ExchangeError {
        ExchangeError::Silent {
            registry: self.reference.registry().to_owned(),
            seconds,
        }
    }

    fn answered(&self, response: &Response, message: &str) -> ExchangeError {
        ExchangeError::Answered {
            registry: self.reference.registry().to_owned(),
            status: response.status().as_u16(),
            message: message.to_owned(),
        }
    }
}

impl Source for Remote {
    fn place(&self) -> String {
        let (registry, repository) = (self.reference.registry(), &self.reference.repository);
        format!("the repository {repository} of {registry}")
    }

    async fn document(&self, blob: Option<Blob>) -> Result<Vec<u8>, ExchangeError> {
        let version = match blob {
            Some(blob) => {
                check_size(blob, MANIFEST_BYTES_MAX as u64, &self.place())?;
                format!("sha256:{}", blob.digest)
            }
            None => self.reference.version(),
        };
        let path = format!("manifests/{version}");
        let bytes = self.get(&path, MANIFEST_BYTES_MAX as u64).await?;
        match (blob, self.reference.digest) {
            (None, Some(digest)) if Digest::of(&bytes) != digest => Err(ExchangeError::Damaged {
                place: self.place(),
                digest,
                found: format!("has other content, of sha256:{}", Digest::of(&bytes)),
            }),
            _ => Ok(bytes),
        }
    }

    async fn configuration(&self, blob: Blob) -> Result<Vec<u8>, ExchangeError> {
        let path = format!("blobs/sha256:{}", blob.digest);
        self.get(&path, CONFIG_BYTES_MAX).await
    }
}

/// The first challenge that this client can answer.
fn challenge_in(headers: &HeaderMap) -> Option<Challenge> {
    let mut challenges = headers.get_all(http::header::WWW_AUTHENTICATE).iter();
    challenges.find_map(|challenge| Challenge::parse(challenge.to_str().ok()?))
}

/// The message of a refusal.
fn message_in(body: &[u8]) -> Option<String> {
    let refusal: Refusal = serde_json::from_slice(body).ok()?;
    let problem = refusal.errors.into_iter().next()?;
    let text = if problem.message.is_empty() {
        problem.code
    } else {
        problem.message
    };
    let text: String = text.chars().take(MESSAGE_LENGTH_MAX).collect();
    (!text.is_empty()).then_some(text)
}

/// The private authorities of a registry, from all readable `*.crt` files of a directory.
fn authorities(directory: &Path) -> Vec<Certificate> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let paths = paths.filter(|path| path.extension().is_some_and(|it| it == "crt"));
    let bundles = paths.filter_map(|path| std::fs::read(path).ok());
    bundles
        .filter_map(|pem| Certificate::from_pem_bundle(&pem).ok())
        .flatten()
        .collect()
}
