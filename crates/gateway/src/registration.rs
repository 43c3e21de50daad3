//! How a capsule comes to be callable: its packed directory is checked and stored, a node builds
//! its image as a run of its own, and the log gets the registration.
//!
//! The build's id follows from the content, so it is made once however often it is asked for; a
//! build that failed is made anew when asked for again.

pub(crate) mod package;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use aod_api::problem::ProblemItem;
use aod_domain::capsule::{Event, Handoffs, Image, Needs, Registration, Resources};
use aod_domain::digest::{Digest, Hasher};
use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::event::CloudEvent;
use aod_domain::file_name::FileName;
use aod_domain::handoff::Lineage;
use aod_domain::id::RunId;
use aod_domain::manifest::{CapsuleName, slug};
use aod_domain::run::{
    Command, Ended, FileEntry, Launched, Limits, Outcome, Payload, Placement, Retries, Run, Work,
};
use aod_domain::spending::Budget;
use aod_domain::subject::{Class, Label};
use aod_domain::tenant::Tenant;
use aod_ports::artifact_store::Stored;
use aod_ports::event_log::{Append, Guard};
use aod_ports::program::blocking;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

pub(crate) use self::package::PACKAGE_BYTES_MAX;
use self::package::Package;
use crate::context::{Context, Shared};
use crate::gone;
use crate::http::error::{ApiError, ApiResult};
use crate::reading;

/// How long a build may take, in seconds: images with large base packages on a slow host.
const BUILD_SECONDS_MAX: u32 = 45 * 60;

/// How long a build may take with its time in the queue, in seconds.
const BUILD_TOTAL_SECONDS_MAX: i64 = 2 * 60 * 60;

/// How often builds of one content may fail, or be collected, before its author must change something.
const BUILDS_MAX: u32 = 100;

/// The packed directory among the files of a build.
const PACKAGE_FILE_NAME: &str = "capsule.tar";

/// What is said of a capsule besides its directory.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Its name, unless `agent.yaml` says: that of its directory.
    pub(crate) directory: Option<String>,
    /// Where its runs, and its build, go.
    pub(crate) label: Label,
    /// Whether it may call everyone: for capsules of the original implementation.
    pub(crate) is_open: bool,
    /// Whose the capsule is, and its build.
    pub(crate) tenant: Tenant,
    pub(crate) registered_by: String,
}

/// A capsule whose directory is fine, and which may be built.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    name: CapsuleName,
    package: Stored,
    manifests: Arc<Package>,
    options: Options,
}

/// Checks the stored package.
pub(crate) async fn prepare(
    context: &Context,
    package: Stored,
    options: Options,
) -> ApiResult<Prepared> {
    let file = context
        .ports
        .artifacts
        .get_file(package.digest, package.size_bytes)
        .await?;
    let read = blocking(move || Package::read(file.path())).await;
    let manifests = read.map_err(invalid)?;
    let directory = options.directory.as_deref().and_then(slug);
    let name = manifests.agent.name.clone().or(directory).ok_or_else(|| {
        let item = ProblemItem::new(
            "/agent.yaml",
            "`name` is missing, and the directory's name is not given either",
        );
        invalid(vec![item])
    })?;
    check_names(context, &options.tenant, &name, &manifests)?;
    Ok(Prepared {
        name,
        package,
        manifests: Arc::new(manifests),
        options,
    })
}

fn invalid(errors: Vec<ProblemItem>) -> ApiError {
    ApiError::new(
        ErrorCode::CapsuleInvalid,
        "the capsule directory does not follow the standard",
    )
    .with_errors(errors)
}

/// No title or alias may be what another capsule of the tenant is called.
fn check_names(
    context: &Context,
    tenant: &Tenant,
    name: &CapsuleName,
    manifests: &Package,
) -> ApiResult<()> {
    let agent = &manifests.agent;
    let own: Vec<&str> = agent
        .title
        .iter()
        .chain(&agent.aliases)
        .map(String::as_str)
        .collect();
    for other in context.capsules.all(tenant) {
        let other = &other.event;
        if other.name == *name {
            continue;
        }
        let words: Vec<&str> = other
            .title
            .iter()
            .chain(&other.aliases)
            .map(String::as_str)
            .collect();
        let is_taken = |word: &&&str| words.contains(*word) || **word == other.name.as_str();
        let clash = own.iter().find(|word| is_taken(word)).copied();
        let clash = clash.or_else(|| words.contains(&name.as_str()).then_some(name.as_str()));
        if let Some(word) = clash {
            let detail = format!("{word:?} is what {} is called already", other.name);
            return Err(ApiError::new(ErrorCode::NameAmbiguous, detail));
        }
    }
    Ok(())
}

impl Prepared {
    pub(crate) fn name(&self) -> &CapsuleName {
        &self.name
    }

    fn handoffs(&self) -> Handoffs {
        if self.options.is_open {
            return Handoffs::Open;
        }
        self.manifests.tools.handoffs()
    }

    /// Whether `registration` already says everything that this one would.
    pub(crate) fn is_registered_as(&self, registration: &Registration) -> bool {
        registration.content == self.package.digest
            && registration.label == self.options.label
            && registration.handoffs == self.handoffs()
            // One from before there were needs lacks them.
            && registration.needs == Needs::of(&self.manifests.agent)
    }
}

/// The run that builds the image: the one there is, unless that failed; then a new one.
pub(crate) async fn build(context: &Context, prepared: &Prepared) -> ApiResult<Run> {
    for number in 0..BUILDS_MAX {
        let id = build_id(prepared, number);
        let run = match context.runs.load(id).await? {
            Some(run) => run,
            None => {
                context
                    .runs
                    .handle(
                        id,
                        &Command::Launch(Box::new(launched(context, prepared)?)),
                        None,
                    )
                    .await?
            }
        };
        match run.ended() {
            None => return Ok(run),
            Some(ended) if ended.event.outcome != Outcome::Succeeded => (),
            // What was built for a capsule that was registered anew since may have been collected.
            Some(ended) => {
                let archive = image(context, &ended.event).await?.archive;
                if gone::lost(context, archive).await?.is_none() {
                    return Ok(run);
                }
            }
        }
    }
    let detail = format!("the same directory was built {BUILDS_MAX} times in vain");
    Err(ApiError::new(ErrorCode::BuildFailed, detail))
}

fn build_id(prepared: &Prepared, number: u32) -> RunId {
    RunId::root_of_key(&build_key(prepared, b"build", number))
}

fn build_key(prepared: &Prepared, purpose: &[u8], number: u32) -> Digest {
    let mut hasher = Hasher::new();
    hasher.field(purpose);
    hasher.field(prepared.name.as_str().as_bytes());
    hasher.field(prepared.package.digest.as_bytes());
    hasher.field(prepared.options.label.as_str().as_bytes());
    hasher.field(&number.to_be_bytes());
    // Builds of the first tenant are found under the keys that they always had.
    let tenant = &prepared.options.tenant;
    if !tenant.is_default() {
        hasher.field(tenant.as_str().as_bytes());
    }
    hasher.finish()
}

fn launched(context: &Context, prepared: &Prepared) -> ApiResult<Launched> {
    let Stored { digest, size_bytes } = prepared.package;
    let name = FileName::parse(PACKAGE_FILE_NAME)
        .map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
    Ok(Launched {
        tenant: prepared.options.tenant.clone(),
        work: Work::Build {
            name: prepared.name.clone(),
            content: digest,
        },
        payload: Payload::Inline(Value::Object(Map::new())),
        files: vec![FileEntry {
            name,
            digest,
            size_bytes,
        }],
        parent: None,
        lineage: Lineage::default(),
        placement: Placement::new(prepared.options.label.clone(), Class::Root),
        resources: Resources {
            timeout_seconds: BUILD_SECONDS_MAX,
            ..Resources::default()
        },
        retries: Retries::default(),
        // Fetching, building and storing are one: the running time bounds them all.
        limits: Limits::default(),
        budget: Budget::default(),
        deadline: context.ports.clock.now() + SignedDuration::from_secs(BUILD_TOTAL_SECONDS_MAX),
        requested_by: prepared.options.registered_by.clone(),
        labels: BTreeMap::new(),
        request: build_key(prepared, b"request", 0),
        admission: None,
        requeued_from: None,
        rerun: None,
        reuses: None,
        trace: None,
    })
}

/// Waits for the build `run` and registers the capsule.
pub(crate) async fn register(context: &Shared, prepared: &Prepared, run: &Run) -> ApiResult<u64> {
    let end = context
        .waiters
        .wait(context.runs.log().as_ref(), run.id, None)
        .await;
    let end = end.ok_or_else(|| {
        ApiError::new(
            ErrorCode::BrokerUnavailable,
            "the gateway is ending; the build goes on: ask again",
        )
    })?;
    let image = image(context, &end.ended.event).await?;
    let registration = registration(context, prepared, image).await?;
    append(context, &prepared.options.tenant, registration).await
}

async fn image(context: &Context, ended: &Ended) -> ApiResult<Image> {
    if let Some(error) = &ended.error {
        let code = ErrorCode::ALL
            .iter()
            .find(|code| code.as_str() == error.code)
            .copied();
        let is_ours = error.source == ErrorSource::Platform;
        let mut refusal = ApiError::new(
            code.unwrap_or(ErrorCode::BuildFailed),
            error.message.clone(),
        );
        if !is_ours {
            refusal = refusal.with_status(axum::http::StatusCode::UNPROCESSABLE_ENTITY);
        } else if error.retryable {
            refusal = refusal.with_status(axum::http::StatusCode::SERVICE_UNAVAILABLE);
        }
        return Err(refusal.with_errors(last_lines(error.detail.as_ref())));
    }
    let output = match &ended.output {
        Some(output) => reading::payload(context, output).await?,
        None => json!(null),
    };
    serde_json::from_value(output).map_err(|error| {
        ApiError::new(ErrorCode::Internal, "the build named no image").because(error)
    })
}

/// The end of the build's output, as the node kept it.
fn last_lines(detail: Option<&Value>) -> Vec<ProblemItem> {
    let lines = detail
        .and_then(|detail| detail.get("last_lines"))
        .and_then(Value::as_array);
    let lines = lines.into_iter().flatten().filter_map(Value::as_str);
    lines
        .map(|line| ProblemItem::new("/Dockerfile", line))
        .collect()
}

async fn registration(
    context: &Context,
    prepared: &Prepared,
    image: Image,
) -> ApiResult<Registration> {
    let manifests = &prepared.manifests;
    Ok(Registration {
        name: prepared.name.clone(),
        title: manifests.agent.title.clone(),
        description: manifests.agent.description.clone(),
        aliases: manifests.agent.aliases.clone(),
        content: prepared.package.digest,
        schema: store(context, &manifests.schema_json).await?,
        agent: store_optional(context, manifests.agent_yaml.as_ref()).await?,
        tools: store_optional(context, manifests.tools_yaml.as_ref()).await?,
        image,
        resources: manifests.agent.resources.clone(),
        handoffs: prepared.handoffs(),
        models: manifests.agent.model_grant(),
        needs: Needs::of(&manifests.agent),
        label: prepared.options.label.clone(),
        registered_by: prepared.options.registered_by.clone(),
    })
}

async fn store(context: &Context, bytes: &Bytes) -> ApiResult<Digest> {
    let piece = stream::iter([Ok(bytes.clone())]).boxed();
    Ok(context.ports.artifacts.put_stream(piece).await?.digest)
}

async fn store_optional(context: &Context, bytes: Option<&Bytes>) -> ApiResult<Option<Digest>> {
    match bytes {
        Some(bytes) => Ok(Some(store(context, bytes).await?)),
        None => Ok(None),
    }
}

/// Stores the registration and waits until this gateway has read it back.
async fn append(context: &Context, tenant: &Tenant, registration: Registration) -> ApiResult<u64> {
    let about = format!("capsule/{}", registration.name);
    let event = Event::Registered(registration);
    let subject = event.subject(tenant);
    let cloud_event = CloudEvent::new(context.runs.header(), about, None, event);
    let append = Append::of(subject, Guard::None, &cloud_event).map_err(|error| {
        ApiError::new(
            ErrorCode::CapsuleInvalid,
            "what agent.yaml and tools.yaml say does not fit into an event",
        )
        .because(error)
    })?;
    let sequence = context.runs.log().append(append).await?;
    context.capsules.wait_applied(sequence).await;
    Ok(sequence)
}
