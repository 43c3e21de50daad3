//! The parsers of foreign bytes in a node, public for the fuzz targets only.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_api::problem::Problem;
use aod_domain::capsule::ModelGrant;
use aod_domain::contract::Contract;
use aod_domain::file_name::FileName;
use aod_domain::id::RunId;
use aod_domain::run::RunError;
use aod_domain::spending::Budget;
use aod_domain::tenant::Tenant;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::SystemClock;
use aod_ports::event_log::EventLog;
use aod_ports::gateways::GatewayTransport;
use aod_ports::log_stream::{LogStream, Output};
use aod_ports::presence::Presence;
use aod_ports::secrets::NoSecrets;
use aod_services::runs::Runs;
use axum::http::HeaderMap;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use uuid::Uuid;

pub use crate::calls::Wish;
use crate::calls::{CallFiles, Calls, Grants, Permissions};
use crate::channel::request::{parse_execute, parse_handoff};
use crate::channel::{Channel, serve_one};
use crate::egress::{Egress, SystemNetwork};
use crate::files::collect::{check, own_error_beside_numbers, parse_output};
use crate::gateways::client::GatewayClient;
use crate::gateways::speaker::Speaker;
use crate::models::access::{Asker, ModelAccess};
use crate::models::meter::tool_calls;
use crate::models::shared::Models;
use crate::record::logs::Logs;
use crate::record::notes::FactNotes;
use crate::secrets::redaction::Redaction;

/// Parses the body of `POST /handoff` on a run's channel.
pub fn handoff(body: &[u8], headers: &HeaderMap) -> Result<Wish, Box<Problem>> {
    parse_handoff(body, headers).map(|(wish, _)| wish)
}

/// Parses the body of `POST /execute` on a run's channel.
pub fn execute(body: &[u8], headers: &HeaderMap) -> Result<Wish, Box<Problem>> {
    parse_execute(body, headers)
}

/// Parses and checks the content of `output.json` of a capsule that succeeded and wrote the files `names`; returns
/// the output and its error.
pub fn output(
    bytes: &[u8],
    contract: &Contract,
    names: &BTreeSet<FileName>,
) -> (Option<Value>, Option<RunError>) {
    let mut error = None;
    let output = check(parse_output(bytes), Some(contract), names, &mut error);
    (output, error)
}

/// The capsule's own error in the content of `output.json`.
pub fn error_of_output(bytes: &[u8]) -> Option<RunError> {
    match parse_output(bytes) {
        Ok(output) => RunError::of_capsule(&output),
        Err(_) => own_error_beside_numbers(bytes),
    }
}

/// Reads an answer of a model; returns the number of its calls of tools.
pub fn answer_of_model(bytes: &[u8]) -> u32 {
    tool_calls(bytes)
}

/// The dependencies of a run's channel.
#[derive(Debug)]
pub struct Desk {
    pub presence: Arc<dyn Presence>,
    pub gateways: Arc<dyn GatewayTransport>,
    pub artifacts: Arc<dyn ArtifactStore>,
    pub log: Arc<dyn EventLog>,
    pub outgoing: PathBuf,
    pub incoming: PathBuf,
    /// Limit for all files of one call.
    pub bytes_max: u64,
}

/// Serves one connection of a run's channel until it ends.
pub async fn channel(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, desk: Desk) {
    let speaker = Speaker {
        gateways: Arc::new(GatewayClient::new(desk.presence, desk.gateways)),
        run: run(),
        attempt: 1,
        token: "token".into(),
    };
    let files = CallFiles {
        artifacts: desk.artifacts,
        outgoing: desk.outgoing,
        incoming: desk.incoming,
        bytes_max: desk.bytes_max,
        fetched: Arc::default(),
    };
    let permissions = Permissions {
        grants: Grants::default(),
        notes: FactNotes::dropped(),
    };
    let calls = Calls::new(speaker, files, permissions);
    // Without secrets, the node sends nothing to a provider.
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
            FactNotes::dropped(),
            Redaction::default(),
        ),
        egress: Egress::new(
            Vec::new(),
            Vec::new(),
            Arc::new(SystemNetwork),
            FactNotes::dropped(),
        ),
    };
    serve_one(stream, channel).await;
    calls.stop();
}

/// Writes at most `bytes_max` of the outputs of an attempt to `path` and `stream`; returns the last lines.
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
