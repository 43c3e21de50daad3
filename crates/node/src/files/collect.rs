//! Collects the output and the files of an ended capsule, and checks them against the contract.

use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Bound;
use std::sync::Arc;

use aod_domain::contract::{Contract, FileKind, OUTPUT_SIZE_BYTES_MAX, Problem};
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::FileName;
use aod_domain::json::{self, Unreadable};
use aod_domain::run::{FileEntry, LeftOut, Payload, RunError};
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_ports::container_runtime::IoPaths;
use aod_services::program::blocking;
use serde_json::{Value, json};

use crate::files::payload::store_payload;
use crate::files::safe_dir::{Listing, Refused, SafeDir};
use crate::files::stage::store_all;
use crate::secrets::redaction::Redaction;
use aod_services::error::chain;

/// The outputs of an attempt.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) output: Option<Payload>,
    pub(crate) files: Vec<FileEntry>,
    pub(crate) left_out: Option<LeftOut>,
    /// The capsule's own error in its output.
    pub(crate) own_error: Option<RunError>,
    /// The violation of the contract, if any.
    pub(crate) error: Option<RunError>,
}

/// A failure of the node to collect outputs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    #[error("the node cannot store the outputs")]
    Store(#[from] StoreError),
    #[error("the node cannot read the outputs")]
    Read(#[from] std::io::Error),
}

/// Collects the output and files of a capsule. With `contract`, for a capsule that succeeded, everything must fit the
/// contract. Otherwise the node stores everything that it can. Redaction follows the check.
pub(crate) async fn collect(
    paths: &IoPaths,
    contract: Option<&Contract>,
    bytes_max: u64,
    artifacts: &Arc<dyn ArtifactStore>,
    redaction: &Redaction,
) -> Result<Collected, CollectError> {
    let (document, left_out_error) = match read_output(&SafeDir::open(&paths.io)?) {
        Ok(bytes) => match parse_output(&bytes) {
            Ok(document) => (Ok(document), None),
            Err(error) => (Err(error), own_error_beside_numbers(&bytes)),
        },
        Err(error) => (Err(error), None),
    };
    let tree = SafeDir::open(&paths.outputs)?;
    let (tree, listing) = if tree.is_empty() {
        (tree, Listing::default())
    } else {
        blocking(move || {
            let listing = tree.walk("");
            (tree, listing)
        })
        .await
    };
    let names: BTreeSet<FileName> = listing.files().cloned().collect();
    let of_refusal = |refused: &Refused| RunError::new(refusal_code(refused), refused.to_string());
    let mut error = listing.refused.first().map(of_refusal);
    let output = check(document, contract, &names, &mut error);
    let stored = store_all(&Arc::new(tree), names, bytes_max, artifacts).await?;
    let refused = listing.refused.iter();
    let mut refused = refused.chain(stored.refused.iter().map(|(_, refused)| refused));
    let left_out = LeftOut::with(None, refused.clone().map(ToString::to_string));
    let error = error.or_else(|| refused.next().map(of_refusal));
    let output = output.map(|output| redaction.json(output));
    let own_error = output.as_ref().and_then(RunError::of_capsule);
    let own_error = own_error.or(left_out_error);
    let output = match output {
        Some(output) => Some(store_payload(output, artifacts.as_ref()).await?),
        None => None,
    };
    Ok(Collected {
        output,
        files: stored.files,
        left_out,
        own_error,
        error,
    })
}

/// Checks the output against the contract; sets `error` unless it is already set.
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
        let mut after = names.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded));
        let is_directory = after
            .next()
            .is_some_and(|found| found.as_str().starts_with(&below));
        is_directory.then_some(FileKind::Directory)
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
            "output.json does not match the output schema",
        )
    };
    refusal(code, text, problems)
}

fn read_output(io: &SafeDir) -> Result<Vec<u8>, RunError> {
    let limit = u64::try_from(OUTPUT_SIZE_BYTES_MAX).unwrap_or(u64::MAX);
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
    Ok(bytes)
}

/// Parses the content of `output.json`.
pub(crate) fn parse_output(bytes: &[u8]) -> Result<Value, RunError> {
    match json::read(bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(malformed("output.json is JSON but not an object".into())),
        Err(Unreadable::Malformed(error)) => {
            Err(malformed(format!("output.json is not JSON: {error}")))
        }
        Err(Unreadable::Numbers(problems)) => {
            let text = "output.json has numbers that 64 bits cannot hold";
            Err(refusal(ErrorCode::OutputInvalid, text, &problems))
        }
    }
}

/// The capsule's own error in an output that is left out because of its numbers: the problems of the numbers replace its
/// detail.
pub(crate) fn own_error_beside_numbers(bytes: &[u8]) -> Option<RunError> {
    let (document, problems) = json::read_with_problems::<Value>(bytes).ok()?;
    let error = RunError::of_capsule(&document).filter(|_| !problems.is_empty())?;
    Some(error.with_detail(json!({"problems": problems})))
}

fn refusal(code: ErrorCode, text: &str, problems: &[Problem]) -> RunError {
    let first = problems
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    RunError::new(code, format!("{text}: {first}")).with_detail(json!({"problems": problems}))
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

impl From<CollectError> for RunError {
    fn from(error: CollectError) -> Self {
        let code = match error {
            CollectError::Store(_) => ErrorCode::StoreUnavailable,
            CollectError::Read(_) => ErrorCode::RuntimeFailed,
        };
        Self::new(code, chain(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// What the node collects of a capsule that failed, after `write` has filled `/io/output`.
    async fn collected(document: &Value, write: impl FnOnce(&Path)) -> Collected {
        collected_text(&document.to_string(), write).await
    }

    async fn collected_text(document: &str, write: impl FnOnce(&Path)) -> Collected {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let cache = aod_artifacts::CacheConfig {
            directory: at("cache"),
            bytes_max: 1 << 20,
        };
        let store = format!("file://{}", at("store").display());
        let artifacts = aod_artifacts::open(&store, &cache).unwrap();
        fs::create_dir_all(at("io/output")).unwrap();
        fs::write(at("io/output.json"), document).unwrap();
        write(&at("io/output"));
        let paths = IoPaths {
            io: at("io"),
            input_json: at("io/input.json"),
            inputs: at("io/input"),
            outputs: at("io/output"),
            handoff: at("io/handoff"),
            outgoing: at("io/handoff/outgoing"),
            incoming: at("io/handoff/incoming"),
            workspace: at("workspace"),
            channel: at("channel"),
            volumes: at("volumes"),
        };
        let redaction = Redaction::default();
        collect(&paths, None, 1 << 20, &artifacts, &redaction)
            .await
            .unwrap()
    }

    fn names(collected: &Collected) -> Vec<&str> {
        let files = collected.files.iter();
        files.map(|file| file.name.as_str()).collect()
    }

    #[tokio::test]
    async fn refused_outputs_are_left_out_and_all_others_are_kept() {
        let collected = collected(&json!({}), |outputs| {
            for name in ["a", "b", "c", "linked"] {
                fs::write(outputs.join(name), name).unwrap();
            }
            fs::hard_link(outputs.join("linked"), outputs.join("twin")).unwrap();
            symlink("/etc/hostname", outputs.join("hostname")).unwrap();
            fs::write(outputs.join("large"), vec![0; 2 << 20]).unwrap();
            fs::create_dir_all(outputs.join("d/".repeat(20))).unwrap();
        })
        .await;
        assert_eq!(names(&collected), ["a", "b", "c"]);
        let left_out = collected.left_out.unwrap();
        assert_eq!(left_out.count, 5, "{left_out:?}");
        for part in [
            "hostname is a symbolic link",
            "linked has more than one hard link",
            "twin has more than one hard link",
            "large has 2097152 bytes",
            "d/d/d/d/",
        ] {
            let is_named = left_out.reasons.iter().any(|reason| reason.contains(part));
            assert!(is_named, "{part}: {left_out:?}");
        }
        assert!(collected.error.is_some());
    }

    #[tokio::test]
    async fn own_error_is_kept_beside_a_large_output() {
        let error = json!({"code": "no_rows", "message": "nothing to do", "retryable": false});
        let document = json!({"error": error, "text": "x".repeat(100_000)});
        let collected = collected(&document, |_| ()).await;
        assert!(matches!(collected.output, Some(Payload::Artifact { .. })));
        let error = collected.own_error.unwrap();
        assert_eq!((error.code.as_str(), error.retryable), ("no_rows", false));
    }

    fn problems(error: &RunError) -> Vec<(&str, &str)> {
        let detail = error.detail.as_ref().unwrap();
        let problems = detail["problems"].as_array().unwrap().iter();
        problems
            .map(|problem| {
                let field = |name: &str| problem[name].as_str().unwrap();
                (field("pointer"), field("code"))
            })
            .collect()
    }

    #[tokio::test]
    async fn output_with_numbers_that_64_bits_cannot_hold_is_refused_with_their_places() {
        let document = r#"{"a": [18446744073709551616], "b": 3.141592653589793238, "c": [0.1, 18446744073709551615]}"#;
        let collected = collected_text(document, |_| ()).await;
        assert_eq!(collected.output, None);
        let error = collected.error.unwrap();
        assert_eq!(error.code, "output_invalid");
        assert_eq!(
            problems(&error),
            [("/a/0", "number_inexact"), ("/b", "number_inexact")]
        );
        let expected =
            "output.json has numbers that 64 bits cannot hold: /a/0: 18446744073709551616 given; ";
        assert!(error.message.starts_with(expected), "{error:?}");
    }

    #[tokio::test]
    async fn own_error_beside_such_a_number_has_the_places_as_its_detail() {
        let document = r#"{"error": {"code": "no_rows", "message": "m", "detail": {"id": 18446744073709551616}}}"#;
        let collected = collected_text(document, |_| ()).await;
        assert_eq!(collected.output, None);
        let error = collected.own_error.unwrap();
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            ("no_rows", "m")
        );
        assert_eq!(problems(&error), [("/error/detail/id", "number_inexact")]);
    }
}
