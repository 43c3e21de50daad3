//! What a capsule left behind: its answer, its files, and whether they keep the contract.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;

use aod_domain::contract::{Contract, FileKind, PAYLOAD_SIZE_BYTES_MAX, Problem};
use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::file_name::FileName;
use aod_domain::run::{FileEntry, Payload, RunError};
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_ports::container_runtime::IoPaths;
use aod_ports::program::blocking;
use serde_json::{Value, json};

use crate::calls::chain;
use crate::payload::store_payload;
use crate::redaction::Redaction;
use crate::stage::{StageError, store_all};
use crate::tree::{Listing, Refused, Tree};

/// The outputs of an attempt.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) output: Option<Payload>,
    pub(crate) files: Vec<FileEntry>,
    /// What breaks the contract, if something does.
    pub(crate) error: Option<RunError>,
}

/// Why nothing could be collected: the node's fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    #[error("outputs cannot be stored")]
    Store(#[from] StoreError),
    #[error("outputs cannot be read")]
    Read(#[from] std::io::Error),
}

/// Takes over what a capsule wrote. `contract` is given if it ended well: then everything must fit.
/// Otherwise all that can be kept is kept. Secrets are taken out once the answer is found to fit.
pub(crate) async fn collect(
    paths: &IoPaths,
    contract: Option<&Contract>,
    bytes_max: u64,
    artifacts: &Arc<dyn ArtifactStore>,
    redaction: &Redaction,
) -> Result<Collected, CollectError> {
    let document = read_output(&Tree::open(&paths.io)?);
    let tree = Tree::open(&paths.outputs)?;
    let (tree, listing) = if tree.is_empty() {
        (tree, Ok(Listing::default()))
    } else {
        blocking(move || {
            let listing = tree.walk("");
            (tree, listing)
        })
        .await
    };
    let (names, refused) = match listing {
        Ok(listing) => (
            listing.files().cloned().collect(),
            listing.refused.into_iter().next(),
        ),
        Err(refused) => (BTreeSet::new(), Some(refused)),
    };
    let mut error =
        refused.map(|refused| RunError::new(refusal_code(&refused), refused.to_string()));
    let output = check(document, contract, &names, &mut error);
    let files = match store_all(&Arc::new(tree), names, bytes_max, artifacts).await {
        Ok(files) => files,
        Err(StageError::Store(error)) => return Err(error.into()),
        Err(StageError::Refused(refused)) => {
            let (_, refused) = refused.into_iter().next().expect("a refusal has a reason");
            error.get_or_insert_with(|| RunError::new(refusal_code(&refused), refused.to_string()));
            Vec::new()
        }
    };
    let output = match output {
        Some(output) => Some(store_payload(redaction.json(output), artifacts.as_ref()).await?),
        None => None,
    };
    Ok(Collected {
        output,
        files,
        error,
    })
}

/// The answer if there is one; what is wrong with it goes to `error` unless there is worse already.
pub(crate) fn check(
    document: Result<Value, RunError>,
    contract: Option<&Contract>,
    names: &BTreeSet<FileName>,
    error: &mut Option<RunError>,
) -> Option<Value> {
    let document = match document {
        Ok(document) => document,
        Err(problem) => {
            error.get_or_insert(problem);
            return None;
        }
    };
    let Some(contract) = contract else {
        return Some(document);
    };
    let exists = |name: &str| {
        if names.contains(name) {
            return Some(FileKind::File);
        }
        let below = format!("{name}/");
        names
            .range::<str, _>((
                std::ops::Bound::Included(below.as_str()),
                std::ops::Bound::Unbounded,
            ))
            .next()
            .is_some_and(|found| found.as_str().starts_with(&below))
            .then_some(FileKind::Directory)
    };
    match contract.check_output(document.clone(), &exists) {
        Ok(checked) => {
            let rewritten = aod_domain::contract::rewrite(
                checked.payload,
                &checked.references,
                &FileName::clone,
            );
            Some(rewritten.unwrap_or(document))
        }
        Err(problems) => {
            error.get_or_insert_with(|| output_error(&problems));
            Some(document)
        }
    }
}

fn output_error(problems: &[Problem]) -> RunError {
    use aod_domain::contract::ProblemCode;
    let is_about_files = problems
        .iter()
        .all(|problem| problem.code == ProblemCode::FileMissing);
    let (code, text) = if is_about_files {
        (
            ErrorCode::OutputFileMissing,
            "output.json names files that are not in /io/output",
        )
    } else {
        (
            ErrorCode::OutputInvalid,
            "output.json does not fit the output schema",
        )
    };
    let first = problems
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    RunError::new(code, format!("{text}: {first}")).with_detail(json!({"problems": problems}))
}

fn read_output(io: &Tree) -> Result<Value, RunError> {
    let limit = u64::try_from(PAYLOAD_SIZE_BYTES_MAX).unwrap_or(u64::MAX);
    let opened = io
        .open_file("output.json", limit)
        .map_err(|refused| match refused {
            Refused::Missing { .. } => RunError::new(
                ErrorCode::OutputMissing,
                "the capsule wrote no /io/output.json",
            ),
            refused => RunError::new(refusal_code(&refused), refused.to_string()),
        })?;
    let mut bytes = Vec::new();
    opened
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| malformed(format!("output.json cannot be read: {error}")))?;
    parse_output(&bytes)
}

/// The answer that the content of `output.json` is.
pub(crate) fn parse_output(bytes: &[u8]) -> Result<Value, RunError> {
    match serde_json::from_slice(bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(malformed("output.json is JSON but not an object".into())),
        Err(error) => Err(malformed(format!("output.json is not JSON: {error}"))),
    }
}

fn malformed(text: String) -> RunError {
    RunError::new(ErrorCode::OutputMalformed, text)
}

fn refusal_code(refused: &Refused) -> ErrorCode {
    match refused {
        Refused::TooLarge { .. } | Refused::TooMany => ErrorCode::OutputTooLarge,
        _ => ErrorCode::OutputFileRefused,
    }
}

/// The error that a capsule wrote itself, `{"error": {code, message, …}}`.
pub(crate) fn own_error(output: &Value) -> Option<RunError> {
    let error = output.get("error")?.as_object()?;
    let text = |name: &str| {
        error
            .get(name)
            .and_then(Value::as_str)
            .map(|text| text.chars().take(4_000).collect())
    };
    Some(RunError {
        code: text("code").unwrap_or_else(|| ErrorCode::CapsuleError.as_str().to_owned()),
        message: text("message")?,
        detail: error
            .get("detail")
            .filter(|detail| !detail.is_null() && detail.to_string().len() <= 4_000)
            .cloned(),
        retryable: error
            .get("retryable")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        source: ErrorSource::Capsule,
    })
}

impl From<CollectError> for RunError {
    fn from(error: CollectError) -> Self {
        let code = match error {
            CollectError::Store(_) => ErrorCode::StoreUnavailable,
            CollectError::Read(_) => ErrorCode::RuntimeFailed,
        };
        Self::new(code, chain(&error))
    }
}
