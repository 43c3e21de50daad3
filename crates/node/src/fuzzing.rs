//! Where foreign bytes enter a node, opened for the fuzz targets and for nobody else. Nothing is
//! decided here.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_api::problem::Problem;
use aod_domain::capsule::ModelGrant;
use aod_domain::contract::Contract;
use aod_domain::file_name::FileName;
use aod_domain::id::RunId;
use aod_domain::run::{Limits, Retries, RunError};
use aod_domain::spending::Budget;
use aod_domain::subject::Label;
use aod_domain::tenant::Tenant;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::SystemClock;
use aod_ports::event_log::EventLog;
use aod_ports::gateways::GatewayTransport;
use aod_ports::log_stream::{LogStream, Output};
use aod_ports::presence::Presence;
use aod_ports::runs::Runs;
use aod_ports::secrets::NoSecrets;
use axum::body::Bytes;
use axum::http::HeaderMap;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use uuid::Uuid;

use crate::calls::{Calls, Permissions, Wish};
use crate::channel::request::{parse_execute, parse_handoff};
use crate::channel::{Channel, serve_one};
use crate::collect::{check, own_error, parse_output};
use crate::egress::{Egress, SystemNetwork};
use crate::gateway_client::{GatewayClient, Speaker};
use crate::grants::Grants;
use crate::logs::Logs;
use crate::models::{Asker, ModelAccess, Models};
use crate::notes::{EgressNotes, Refusals};
use crate::redaction::Redaction;

/// What a capsule asks for in one handoff.
#[derive(Clone, Debug, PartialEq)]
pub struct Handoff {
    pub target: String,
    pub arguments: Map<String, Value>,
    pub idempotency_key: Option<String>,
    pub timeout_seconds: Option<u32>,
    pub retries: Retries,
    pub limits: Limits,
    pub label: Option<Label>,
}

impl From<Wish> for Handoff {
    fn from(wish: Wish) -> Self {
        let Wish {
            target,
            arguments,
            idempotency_key,
            timeout_seconds,
            retries,
            limits,
            label,
        } = wish;
        Self {
            target,
            arguments,
            idempotency_key,
            timeout_seconds,
            retries,
            limits,
            label,
        }
    }
}

/// The body of `POST /handoff` on a run's channel.
pub fn handoff(body: &[u8], headers: &HeaderMap) -> Result<Handoff, Box<Problem>> {
    parse_handoff(Ok(Bytes::copy_from_slice(body)), headers).map(|(wish, _)| wish.into())
}

/// The body of `POST /execute` on a run's channel.
pub fn execute(body: &[u8], headers: &HeaderMap) -> Result<Handoff, Box<Problem>> {
    parse_execute(Ok(Bytes::copy_from_slice(body)), headers).map(Handoff::from)
}

/// The content of `output.json` of a capsule that ended well and left files called `names`: the
/// answer, and what is wrong with it.
pub fn output(
    bytes: &[u8],
    contract: &Contract,
    names: &BTreeSet<FileName>,
) -> (Option<Value>, Option<RunError>) {
    let mut error = None;
    let output = check(parse_output(bytes), Some(contract), names, &mut error);
    (output, error)
}

/// The error that the content of `output.json` tells itself.
pub fn error_of_output(bytes: &[u8]) -> Option<RunError> {
    own_error(&parse_output(bytes).ok()?)
}

/// What a run's channel is served with.
#[derive(Debug)]
pub struct Desk {
    pub presence: Arc<dyn Presence>,
    pub gateways: Arc<dyn GatewayTransport>,
    pub artifacts: Arc<dyn ArtifactStore>,
    pub log: Arc<dyn EventLog>,
    pub outgoing: PathBuf,
    pub incoming: PathBuf,
    /// Of all files of one call.
    pub bytes_max: u64,
}

/// Serves one connection of a run's channel until it ends.
pub async fn channel(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, desk: Desk) {
    let speaker = Speaker {
        run: run(),
        attempt: 1,
        token: "token".into(),
    };
    let gateways = GatewayClient::new(desk.presence, desk.gateways);
    let directories = (desk.outgoing, desk.incoming);
    let calls = Calls::new(
        speaker,
        Arc::new(gateways),
        desk.artifacts,
        directories,
        desk.bytes_max,
        Permissions {
            grants: Grants::default(),
            refusals: Refusals::untold(),
        },
        Arc::default(),
    );
    // No secrets: nothing is ever sent to a provider.
    let runs = Runs::new(desk.log, Arc::new(SystemClock), "/node/fuzzed");
    let models = Models::new(Arc::default(), Arc::new(NoSecrets), runs, None);
    let asker = Asker {
        tenant: Tenant::default(),
        run: run(),
        attempt: 1,
        capsule: "fuzzed".parse().expect("a name"),
        grant: Some(ModelGrant {
            names: vec!["fuzzed".into()],
            budget: Budget::default(),
        }),
        tree: Budget::default(),
    };
    let channel = Channel {
        calls: Arc::clone(&calls),
        models: ModelAccess::new(
            Arc::new(models),
            asker,
            Refusals::untold(),
            Redaction::default(),
        ),
        egress: Egress::new(
            Vec::new(),
            Vec::new(),
            Arc::new(SystemNetwork),
            EgressNotes::untold(),
        ),
    };
    serve_one(stream, channel).await;
    calls.stop();
}

/// Writes what an attempt said on its outputs to `path` and `stream`, at most `bytes_max` of it, and
/// answers with its last lines.
pub fn logs<'a>(
    path: &Path,
    bytes_max: u64,
    stream: Arc<dyn LogStream>,
    writes: impl IntoIterator<Item = (Output, &'a [u8])>,
) -> io::Result<Vec<String>> {
    let mut logs = Logs::start(
        path,
        run(),
        1,
        bytes_max,
        stream,
        Arc::new(SystemClock),
        Redaction::default(),
    );
    for (output, bytes) in writes {
        logs.write(output, bytes)?;
    }
    logs.end()?;
    Ok(logs.last_lines())
}

fn run() -> RunId {
    RunId::root_of(Uuid::from_u128(1))
}
