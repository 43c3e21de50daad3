//! URLs of stores, and their clients.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use url::{Host, Url};

use crate::OpenError;

/// Maximum time for retries of a request, in seconds: enough for a restart of the server.
const RETRY_SECONDS_MAX: u64 = 60;

/// Maximum silence during a request, in seconds.
const SILENCE_SECONDS_MAX: u64 = 30;

/// Parameters of `s3:` URLs.
const S3_PARAMETERS: [&str; 4] = ["endpoint", "region", "credentials", "allow_http"];

/// The location of artifacts.
#[derive(Debug)]
pub(crate) enum Location {
    /// A directory of this host, possibly shared.
    Directory(PathBuf),
    /// Any object store: one client that retries, and one that does not.
    Remote {
        store: Arc<dyn ObjectStore>,
        removing: Arc<dyn ObjectStore>,
    },
}

/// Parses a URL and creates the client, if necessary.
pub(crate) fn parse(text: &str) -> Result<Location, OpenError> {
    let unclear = |why: String| OpenError::Url {
        url: text.to_owned(),
        why,
    };
    let url = Url::parse(text).map_err(|error| unclear(error.to_string()))?;
    if url.password().is_some() || !url.username().is_empty() {
        return Err(unclear(
            "it contains a user or a password; pass credentials in a file or in the environment"
                .to_owned(),
        ));
    }
    if url.scheme() == "file" {
        let path = url.to_file_path().ok().filter(|path| path.has_root());
        return path
            .map(Location::Directory)
            .ok_or_else(|| unclear("expected an absolute path, as in file:///srv/aod".to_owned()));
    }
    let bucket = url.host_str().unwrap_or_default().to_owned();
    if bucket.is_empty() {
        return Err(unclear(
            "the bucket is missing, as in s3://bucket/prefix".to_owned(),
        ));
    }
    use_ring();
    let store = |retry: RetryConfig| client(&url, &bucket, retry);
    let (store, removing) = (store(retry()), store(never_again()));
    let unusable = |problem: Unusable| match problem {
        Unusable::Url(why) => unclear(why),
        Unusable::Client(source) => OpenError::Client {
            url: text.to_owned(),
            source: source.into(),
        },
    };
    Ok(Location::Remote {
        store: store.map_err(unusable)?,
        removing: removing.map_err(unusable)?,
    })
}

/// Why there is no client.
enum Unusable {
    Url(String),
    Client(object_store::Error),
}

impl From<object_store::Error> for Unusable {
    fn from(error: object_store::Error) -> Self {
        Self::Client(error)
    }
}

fn client(url: &Url, bucket: &str, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>, Unusable> {
    let store: Arc<dyn ObjectStore> = match url.scheme() {
        "s3" => {
            let builder = s3(url, bucket).map_err(Unusable::Url)?;
            Arc::new(builder.with_retry(retry).build()?)
        }
        "gs" => Arc::new(
            GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(bucket)
                .with_client_options(client_options())
                .with_retry(retry)
                .build()?,
        ),
        "az" => Arc::new(
            MicrosoftAzureBuilder::from_env()
                .with_container_name(bucket)
                .with_client_options(client_options())
                .with_retry(retry)
                .build()?,
        ),
        other => {
            let why = format!("unknown scheme `{other}`; expected file, s3, gs or az");
            return Err(Unusable::Url(why));
        }
    };
    let prefix = url.path().trim_matches('/');
    if prefix.is_empty() {
        return Ok(store);
    }
    let prefix = object_store::path::Path::from_url_path(prefix)
        .map_err(|error| Unusable::Url(error.to_string()))?;
    Ok(Arc::new(PrefixStore::new(store, prefix)))
}

fn s3(url: &Url, bucket: &str) -> Result<AmazonS3Builder, String> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_virtual_hosted_style_request(false);
    let mut allow_http = false;
    let mut endpoint = None;
    for (name, value) in url.query_pairs() {
        match &*name {
            "endpoint" => endpoint = Some(value.into_owned()),
            "region" => builder = builder.with_region(value),
            "credentials" => builder = with_credentials(builder, Path::new(&*value))?,
            "allow_http" => allow_http = value == "true",
            other => {
                return Err(format!(
                    "unknown parameter `{other}`; expected one of {}",
                    S3_PARAMETERS.join(", ")
                ));
            }
        }
    }
    if let Some(endpoint) = endpoint {
        allow_http |= check_endpoint(&endpoint, allow_http)?;
        builder = builder.with_endpoint(endpoint);
    }
    Ok(builder.with_client_options(client_options().with_allow_http(allow_http)))
}

/// Whether an endpoint uses plain HTTP; rejects plain HTTP to public addresses.
fn check_endpoint(endpoint: &str, allow_http: bool) -> Result<bool, String> {
    let url = Url::parse(endpoint).map_err(|error| format!("endpoint: {error}"))?;
    match url.scheme() {
        "https" => Ok(false),
        "http" if allow_http || is_near(url.host().as_ref()) => Ok(true),
        "http" => Err(format!(
            "{endpoint} is neither loopback nor a private address; use https, or set allow_http=true"
        )),
        other => Err(format!("endpoint: `{other}` is neither http nor https")),
    }
}

fn is_near(host: Option<&Host<&str>>) -> bool {
    let address = match host {
        Some(&Host::Ipv4(address)) => IpAddr::V4(address),
        Some(&Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(name)) => return *name == "localhost",
        None => return false,
    };
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_private(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local(),
    }
}

/// Reads a file in the format of the AWS tools; ignores sections other than `[default]`.
fn with_credentials(mut builder: AmazonS3Builder, path: &Path) -> Result<AmazonS3Builder, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut is_default = true;
    let mut found = 0;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_default = line == "[default]";
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_default) else {
            continue;
        };
        builder = match name.trim() {
            "aws_access_key_id" => builder.with_access_key_id(value.trim()),
            "aws_secret_access_key" => builder.with_secret_access_key(value.trim()),
            "aws_session_token" => {
                builder = builder.with_token(value.trim());
                continue;
            }
            _ => continue,
        };
        found += 1;
    }
    if found != 2 {
        let path = path.display();
        return Err(format!(
            "{path}: aws_access_key_id and aws_secret_access_key are missing"
        ));
    }
    Ok(builder)
}

/// Limits the silence of a request, not its duration.
fn client_options() -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_read_timeout(Duration::from_secs(SILENCE_SECONDS_MAX))
}

fn retry() -> RetryConfig {
    RetryConfig {
        retry_timeout: Duration::from_secs(RETRY_SECONDS_MAX),
        ..RetryConfig::default()
    }
}

/// Settings for requests that must not be repeated.
fn never_again() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..retry()
    }
}

/// Sets ring as the provider of cryptography for TLS, unless a provider is set.
fn use_ring() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests;
