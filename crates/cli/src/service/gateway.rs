//! A gateway, wired to the adapters that its flags select.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use aod_domain::audit::SealKey;
use aod_domain::digest::Digest;
use aod_domain::retention::UNNAMED_FOR;
use aod_gateway::{Access, Config, Gateway, Ports, StartError, Tls, Token};
use aod_jetstream::Broker;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::SystemClock;

use super::traces::Traces;
use super::wiring::GATEWAY;
use super::{credentials, data, wiring};
use crate::arguments::{GatewayArguments, TlsArguments};
use crate::failure::Failure;

/// Maximum waiting time of one request for a result, in seconds. A client then sends a new request, so the gateway
/// drops dead connections.
const WAIT_SECONDS_MAX: u32 = 15 * 60;

/// Maximum size of an uploaded file, in bytes: 64 GiB, more than a run may hand over.
const UPLOAD_BYTES_MAX: u64 = 64 << 30;

/// How to use `--open-to-agent-on-demand`.
pub(super) const LOOPBACK_HINT: &str = "listen on a loopback address, for example --listen 127.0.0.1:8000; clients on other hosts need a token";

/// Starts a gateway; it serves when this returns. Dropping the traces stops their export.
pub async fn start(arguments: &GatewayArguments) -> Result<(Gateway, Option<Traces>), Failure> {
    let directory = data::directory(arguments.data.as_deref())?;
    data::make_directory(&directory)?;
    let access = access(arguments.token_file.as_deref())?;
    let broker = wiring::connect(&arguments.broker, GATEWAY).await?;
    let cache = directory.join("cache-gateway");
    let opened = wiring::artifacts(&arguments.broker, &broker, GATEWAY, &cache, None).await?;
    let artifacts = opened.artifacts;
    let mut config = config(
        arguments.listen,
        arguments.public_url.clone(),
        access,
        &directory,
        arguments.broker.lease_seconds,
        credentials::seal_key(arguments.seal_key.as_deref(), &directory)?,
    );
    config.log_age = arguments.archive.age();
    config.tls = tls(&arguments.tls)?.map(Arc::new);
    config.disk_reserve = arguments.disk.disk_reserve;
    let traces = Traces::begin(&arguments.traces, &broker, &artifacts).await?;
    let ports = ports(&broker, artifacts).await?;
    let gateway = Gateway::start(config, ports).await;
    Ok((gateway.map_err(|error| failed(&error))?, traces))
}

/// The access to a gateway with this token file.
pub(super) fn access(token_file: Option<&Path>) -> Result<Access, Failure> {
    let Some(path) = token_file else {
        return Ok(Access::Development);
    };
    Ok(Access::Tokens(vec![token(path)?]))
}

/// The token in this file, which is valid for everything.
pub(super) fn token(path: &Path) -> Result<Token, Failure> {
    let token = credentials::read_token(path)?;
    Ok(Token {
        principal: aod_domain::access::OPERATOR.to_owned(),
        sha256: Digest::of(token),
    })
}

/// A configuration that keeps all events in the broker and uses plain HTTP.
pub(super) fn config(
    listen: SocketAddr,
    public_url: Option<String>,
    access: Access,
    directory: &Path,
    lease_seconds: u32,
    seal_key: SealKey,
) -> Config {
    Config {
        listen,
        public_url,
        access,
        data_directory: directory.to_owned(),
        lease_seconds,
        lists_delay: aod_gateway::LISTS_DELAY,
        wait_seconds_max: WAIT_SECONDS_MAX,
        upload_bytes_max: UPLOAD_BYTES_MAX,
        disk_reserve: None,
        unnamed_for: UNNAMED_FOR,
        seal_key: Arc::new(seal_key),
        log_age: None,
        tls: None,
    }
}

/// The TLS certificate of the gateway, if any.
fn tls(arguments: &TlsArguments) -> Result<Option<Tls>, Failure> {
    let (Some(certificate), Some(key)) = (&arguments.tls_certificate, &arguments.tls_key) else {
        return Ok(None);
    };
    let loaded = Tls::load(certificate, key);
    loaded.map(Some).map_err(|error| {
        Failure::usage("cannot use the certificate of --tls-certificate")
            .because(&error)
            .with_hint("create a certificate and its key with `aod certs DIR --host NAME`")
    })
}

pub(super) async fn ports(
    broker: &Broker,
    artifacts: Arc<dyn ArtifactStore>,
) -> Result<Ports, Failure> {
    let ends = broker.feed(aod_audit::FEED).await.map_err(|error| {
        Failure::environment("cannot follow the results of runs in the broker")
            .because(error.as_ref())
    })?;
    Ok(Ports {
        log: Arc::new(broker.event_log()),
        queue: Arc::new(broker.work_queue()),
        logs: Arc::new(broker.log_stream()),
        presence: Arc::new(broker.presence()),
        artifacts,
        clock: Arc::new(SystemClock),
        ends: Arc::new(ends),
    })
}

pub(super) fn failed(error: &StartError) -> Failure {
    let failure = Failure::environment("the gateway cannot start").because(error);
    match error {
        StartError::Unprotected { .. } => failure
            .with_hint("pass a token file with --token-file; `aod credentials DIR` creates one"),
        StartError::OpenToNetwork { .. } => failure.with_hint(LOOPBACK_HINT),
        StartError::Listen { .. } => failure.with_hint("choose another address with --listen"),
        _ => failure,
    }
}
