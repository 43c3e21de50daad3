//! Builds a capsule's image from its packed directory, and keeps it for hosts that did not.

use aod_domain::capsule::{Image, image_tag};
use aod_domain::digest::Digest;
use aod_domain::manifest::CapsuleName;
use aod_domain::run::{Outcome, Payload, RunError};
use aod_ports::artifact_store::StoreError;
use aod_ports::container_runtime::RuntimeError;
use aod_ports::log_stream::Output;
use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use tokio::sync::mpsc;
use tracing::warn;

use crate::attempt::{Attempt, Finish, stopped};
use crate::calls::chain;
use crate::logs::Logs;
use crate::prepare::runtime_error;
use crate::redaction::Redaction;

/// Lines of a build on their way to the logs.
const LINES_QUEUED: usize = 256;

pub(crate) async fn run(attempt: &Attempt, name: &CapsuleName, content: Digest) -> Finish {
    let (lost, cancelled) = (attempt.lease.lost(), attempt.cancelled.clone());
    let limit =
        std::time::Duration::from_secs(attempt.run.launched.event.resources.timeout_seconds.into());
    tokio::select! {
        biased;
        () = lost.cancelled() => Finish::Fenced,
        () = attempt.shared.must_hand_back() => stopped(),
        () = cancelled.cancelled() => {
            let error = RunError::new(aod_domain::error_code::ErrorCode::Cancelled, "the build was cancelled");
            Finish::Ended(Box::new(attempt.ended(Outcome::Cancelled, Some(error))))
        }
        built = tokio::time::timeout(limit, build(attempt, name, content)) => match built {
            Ok(finish) => finish,
            Err(_) => {
                let text = format!("the build took longer than {} s", limit.as_secs());
                let error = RunError::new(aod_domain::error_code::ErrorCode::TimedOut, text);
                Finish::Ended(Box::new(attempt.ended(Outcome::TimedOut, Some(error))))
            }
        },
    }
}

async fn build(attempt: &Attempt, name: &CapsuleName, content: Digest) -> Finish {
    let shared = &attempt.shared;
    let lost =
        |code, error: &dyn std::error::Error| Finish::Lost(RunError::new(code, chain(error)));
    let directory = match tempfile::tempdir_in(&shared.config.data) {
        Ok(directory) => directory,
        Err(error) => return lost(aod_domain::error_code::ErrorCode::RuntimeFailed, &error),
    };
    let mut logs = Logs::start(
        &directory.path().join("log"),
        attempt.run.id,
        attempt.number,
        shared.config.log_bytes_max,
        std::sync::Arc::clone(&shared.ports.logs),
        std::sync::Arc::clone(shared.runs.clock()),
        // A build has no secrets.
        Redaction::default(),
    );
    let (progress, mut lines) = mpsc::channel::<String>(LINES_QUEUED);
    let images = make(attempt, name, content, progress);
    let pump = async {
        while let Some(line) = lines.recv().await {
            if let Err(error) = logs.write(Output::Stdout, format!("{line}\n").as_bytes()) {
                warn!(%error, "a line of the build is lost");
            }
        }
    };
    let (made, ()) = tokio::join!(images, pump);
    let mut ended = match made {
        Ok(image) => {
            let mut ended = attempt.ended(Outcome::Succeeded, None);
            ended.output = Some(Payload::Inline(json!(image)));
            ended
        }
        Err(MakeError::Store(error)) => {
            return lost(aod_domain::error_code::ErrorCode::StoreUnavailable, &error);
        }
        Err(MakeError::Runtime(error)) => {
            let mut problem = runtime_error(&error);
            if let RuntimeError::BuildFailed { last_lines, .. } = &error {
                problem = problem
                    .with_detail(json!({"last_lines": crate::capsule_run::shortened(last_lines)}));
            }
            match attempt.failed(problem) {
                Finish::Ended(ended) => *ended,
                other => return other,
            }
        }
    };
    ended.timings.exited_at = Some(shared.runs.clock().now());
    if logs.end().is_ok() {
        ended.logs = logs
            .store(shared.ports.artifacts.as_ref())
            .await
            .unwrap_or(None);
    }
    Finish::Ended(Box::new(ended))
}

enum MakeError {
    Runtime(RuntimeError),
    Store(StoreError),
}

async fn make(
    attempt: &Attempt,
    name: &CapsuleName,
    content: Digest,
    progress: mpsc::Sender<String>,
) -> Result<Image, MakeError> {
    let (runtime, artifacts) = (
        &attempt.shared.ports.runtime,
        &attempt.shared.ports.artifacts,
    );
    let size = artifacts.size(content).await.map_err(MakeError::Store)?;
    let missing = MakeError::Store(StoreError::Missing { digest: content });
    let context = artifacts
        .get_file(content, size.ok_or(missing)?)
        .await
        .map_err(MakeError::Store)?;
    let tag = image_tag(name, content);
    let config_digest = runtime
        .build_image(context.path().to_path_buf(), name.as_str(), &tag, progress)
        .await
        .map_err(MakeError::Runtime)?;
    attempt.shared.image_uses.found(&config_digest);
    let archive = runtime
        .save_image(&config_digest)
        .await
        .map_err(MakeError::Runtime)?;
    let stored = artifacts
        .put_stream(
            archive
                .map_err(|error| Box::new(error) as aod_ports::BoxError)
                .boxed(),
        )
        .await
        .map_err(MakeError::Store)?;
    Ok(Image {
        config_digest,
        archive: stored.digest,
        archive_size_bytes: stored.size_bytes,
    })
}
