//! The files of the calls of one attempt: staged from `outgoing/`, delivered into `incoming/`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use aod_api::problem::{Problem, ProblemItem};
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::FileName;
use aod_domain::id::RunId;
use aod_domain::run::{FileEntry, Payload};
use aod_ports::artifact_store::ArtifactStore;
use serde_json::Value;

use crate::files::deliver::deliver;
use crate::files::payload::load_payload;
use crate::files::safe_dir::Refused;
use crate::files::stage::{StageError, stage};
use aod_services::error::chain;

/// Where the files of calls come from, and where they go.
pub(crate) struct CallFiles {
    pub(crate) artifacts: Arc<dyn ArtifactStore>,
    pub(crate) outgoing: PathBuf,
    pub(crate) incoming: PathBuf,
    /// Limit for all files of one call.
    pub(crate) bytes_max: u64,
    /// Bytes of files from the artifact store.
    pub(crate) fetched: Arc<AtomicU64>,
}

impl CallFiles {
    /// Stores the files that `arguments` name.
    pub(super) async fn stage(&self, arguments: &Value) -> Result<Vec<FileEntry>, Box<Problem>> {
        let outgoing = self.outgoing.clone();
        let staged = stage(arguments, outgoing, self.bytes_max, &self.artifacts);
        staged.await.map_err(|error| Box::new(stage_problem(error)))
    }

    /// Puts the `files` of the callee `run` into `incoming/`, under the names in `renamed`.
    pub(super) async fn deliver(
        &self,
        run: RunId,
        files: &[FileEntry],
        renamed: &BTreeMap<FileName, FileName>,
    ) -> Result<(), Box<Problem>> {
        let name_of = |name: &FileName| renamed.get(name).unwrap_or(name).clone();
        let (artifacts, fetched) = (self.artifacts.as_ref(), &self.fetched);
        let delivered = deliver(files, name_of, &self.incoming, artifacts, fetched).await;
        delivered.map_err(|error| unavailable(&format!("fetch the files of {run}"), &error))
    }

    /// The value of the `output` of the callee `run`, if any.
    pub(super) async fn load(
        &self,
        run: RunId,
        output: Option<&Payload>,
    ) -> Result<Option<Value>, Box<Problem>> {
        let Some(payload) = output else {
            return Ok(None);
        };
        let loaded = load_payload(payload, self.artifacts.as_ref()).await;
        loaded
            .map(Some)
            .map_err(|error| unavailable(&format!("read the output of {run}"), &error))
    }
}

fn unavailable(what: &str, error: &dyn std::error::Error) -> Box<Problem> {
    let text = format!("the node cannot {what}: {}", chain(error));
    Box::new(Problem::new(ErrorCode::StoreUnavailable, text))
}

fn stage_problem(error: StageError) -> Problem {
    match error {
        StageError::Refused(refused) => {
            let item = |(pointer, reason): (String, Refused)| {
                ProblemItem::new(format!("/args{pointer}"), reason.to_string())
            };
            let text = "the node rejected files of the call";
            let problem = Problem::new(ErrorCode::FileRefused, text);
            problem.with_errors(refused.into_iter().map(item).collect())
        }
        StageError::Store(error) => Problem::new(ErrorCode::StoreUnavailable, chain(&error)),
    }
}
