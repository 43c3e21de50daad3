//! Builds a capsule's image from its packed directory, and stores the image for other hosts.

mod bases;

use std::time::Duration;

use aod_domain::capsule::{self, Built, Registration, image_tag};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::manifest::CapsuleName;
use aod_domain::run::{Outcome, Payload, RunError};
use aod_domain::subject;
use aod_domain::tenant::Tenant;
use aod_ports::artifact_store::StoreError;
use aod_ports::container_runtime::{ImageBuild, ImagePush, RuntimeError};
use aod_ports::log_stream::Output;
use serde_json::json;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use self::bases::Chooser;
use super::common::{runtime_error, store_logs, with_last_lines, within};
use crate::attempt::{Attempt, Finish};
use crate::secrets::redaction::Redaction;
use crate::shared::Shared;
use aod_services::error::chain;

/// Lines of build output that wait for the logs.
const LINES_QUEUED: usize = 256;

pub(super) async fn run(
    attempt: &Attempt,
    name: &CapsuleName,
    content: Digest,
    updates_bases: bool,
) -> Finish {
    let seconds = attempt.run.launched.event.resources.timeout_seconds;
    let limit = Duration::from_secs(seconds.into());
    let build = within(Some(limit), build(attempt, name, content, updates_bases));
    match attempt.unless_over("the build was cancelled", build).await {
        Ok(Some(finish)) | Err(finish) => finish,
        Ok(None) => {
            let text = format!("the build took longer than {seconds} s");
            let error = RunError::new(ErrorCode::TimedOut, text);
            Finish::ended(attempt.ended(Outcome::TimedOut, Some(error)))
        }
    }
}

async fn build(
    attempt: &Attempt,
    name: &CapsuleName,
    content: Digest,
    updates_bases: bool,
) -> Finish {
    let shared = &attempt.shared;
    let lost =
        |code, error: &dyn std::error::Error| Finish::Lost(RunError::new(code, chain(error)));
    let directory = match tempfile::tempdir_in(&shared.config.data) {
        Ok(directory) => directory,
        Err(error) => return lost(ErrorCode::RuntimeFailed, &error),
    };
    // A build has no secrets.
    let mut logs = attempt.logs(&directory.path().join("log"), Redaction::default());
    let (progress, mut lines) = mpsc::channel::<String>(LINES_QUEUED);
    let images = make(attempt, name, content, updates_bases, progress);
    let pump = async {
        while let Some(line) = lines.recv().await {
            if let Err(error) = logs.write(Output::Stdout, format!("{line}\n").as_bytes()) {
                warn!(%error, "a line of build output was lost");
            }
        }
    };
    let (made, ()) = tokio::join!(images, pump);
    let mut ended = match made {
        Ok(built) => {
            let mut ended = attempt.ended(Outcome::Succeeded, None);
            ended.output = Some(Payload::Inline(json!(built)));
            ended
        }
        Err(RuntimeError::Store(error)) => {
            return lost(ErrorCode::StoreUnavailable, &error);
        }
        Err(error) => {
            let mut problem = runtime_error(&error);
            if let RuntimeError::BuildFailed { last_lines, .. } = &error {
                problem = with_last_lines(problem, last_lines);
            }
            match attempt.failed(problem) {
                Finish::Ended(ended) => *ended,
                other => return other,
            }
        }
    };
    ended.timings.exited_at = Some(shared.runs.clock().now());
    ended.logs = store_logs(logs, shared.ports.artifacts.as_ref(), None).await;
    Finish::ended(ended)
}

async fn make(
    attempt: &Attempt,
    name: &CapsuleName,
    content: Digest,
    updates_bases: bool,
    progress: mpsc::Sender<String>,
) -> Result<Built, RuntimeError> {
    let shared = &attempt.shared;
    let (runtime, artifacts) = (&shared.ports.runtime, &shared.ports.artifacts);
    let images = &shared.ports.images;
    let size = artifacts.size(content).await?;
    let size = size.ok_or(StoreError::Missing { digest: content })?;
    let context = artifacts.get_file(content, size).await?;
    let tag = image_tag(name, content);
    let path = context.path().to_path_buf();
    let tenant = &attempt.run.launched.event.tenant;
    let registered = registered(shared, tenant, name).await?;
    let earlier = match &registered {
        Some(registered) => earlier(shared, registered).await,
        None => None,
    };
    let chooser = Chooser {
        runtime: runtime.as_ref(),
        artifacts: images,
        registered: registered.as_ref(),
        is_update: updates_bases,
        progress: &progress,
    };
    let mut chosen = chooser.choose(&path).await?;
    let build = ImageBuild {
        earlier,
        dockerfile: chosen.dockerfile.take(),
        ..ImageBuild::new(path, name.as_str(), &tag, progress.clone())
    };
    let config_digest = runtime.build_image(build).await?;
    shared.host.images.found(&config_digest);
    // The build may have found an image that was last used long ago, which the node would remove soon.
    shared.host.images.touch(&config_digest);
    let push = ImagePush {
        image: &config_digest,
        artifacts: images,
        progress: progress.clone(),
    };
    let image = runtime.store_image(push).await?;
    let bases = chooser.store(chosen, &image).await?;
    Ok(Built { image, bases })
}

/// The registered version. Without an answer of the log the build fails: it would pin other base images.
async fn registered(
    shared: &Shared,
    tenant: &Tenant,
    name: &CapsuleName,
) -> Result<Option<Registration>, StoreError> {
    let filter = subject::capsule_of(tenant, name);
    let stored = shared.runs.log().read_last(&filter).await;
    let stored = stored.map_err(|error| StoreError::Unavailable {
        place: "the log".to_owned(),
        source: error.into(),
    })?;
    // A registration that only a newer program understands has no pins for this one.
    let event = stored.and_then(|stored| Some(stored.decode::<capsule::Event>().ok()?.event));
    Ok(event.and_then(capsule::Event::into_registration))
}

/// The image of the registered version, fetched so that the build can reuse its layers, whichever node built it; none
/// if it cannot be fetched: the build then takes longer.
async fn earlier(shared: &Shared, registered: &Registration) -> Option<String> {
    let image = &registered.image;
    let (runtime, images) = (&shared.ports.runtime, &shared.ports.images);
    match runtime.fetch_image(image, images).await {
        Ok(_) => Some(image.config_digest.clone()),
        Err(error) => {
            debug!(error = %chain(&error), "the build cannot reuse layers of the registered version");
            None
        }
    }
}
