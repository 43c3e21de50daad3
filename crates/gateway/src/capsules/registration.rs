//! Registration of capsules: the gateway checks and stores the packed directory, a node builds the image as a run of
//! its own, and the gateway appends the registration to the log.
//!
//! The id of the build follows from the content, so repeated requests join the same build. After a failed build, a new
//! request starts a new build.

pub(crate) mod package;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use aod_api::problem::ProblemItem;
use aod_domain::capsule::base::respects;
use aod_domain::capsule::{
    Built, CapsuleChain, Event, Handoffs, Needs, Openness, Registration, Resources,
};
use aod_domain::chain::Chain as _;
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
use aod_domain::subject::{Class, Pool};
use aod_domain::tenant::Tenant;
use aod_ports::artifact_store::Stored;
use aod_ports::event_log::{Append, Guard};
use aod_services::program::blocking;
use aod_services::writer::catch_up;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

pub(crate) use self::package::PACKAGE_BYTES_MAX;
use self::package::Package;
use super::catalogue::Registered;
use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::files::deleted_artifacts;
use crate::reading;

/// Maximum time of a build, in seconds: enough for images with large base packages on a slow host.
const BUILD_SECONDS_MAX: u32 = 45 * 60;

/// Maximum time of a build, including its time in the queue, in seconds.
const BUILD_TOTAL_SECONDS_MAX: i64 = 2 * 60 * 60;

/// Maximum number of failed or deleted builds of the same content; then its author must change something.
const BUILDS_MAX: u32 = 100;

/// The packed directory among the files of a build.
const PACKAGE_FILE_NAME: &str = "capsule.tar";

/// Options of a registration in addition to the directory.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Name of the directory: the name of the capsule, unless `agent.yaml` names it.
    pub(crate) directory: Option<String>,
    /// Pool of its runs and of its build.
    pub(crate) pool: Pool,
    pub(crate) openness: Openness,
    /// Whether to ignore the base images of the registered version.
    pub(crate) updates_bases: bool,
    /// Tenant of the capsule and of its build.
    pub(crate) tenant: Tenant,
    pub(crate) registered_by: String,
}

/// A capsule with a valid directory, ready to be built.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    name: CapsuleName,
    package: Stored,
    manifests: Arc<Package>,
    options: Options,
    /// The version that is registered now.
    registered: Option<Registered>,
    /// Sequence of the capsule's last event, its registration or its removal; 0 for none. Only updates need it.
    changed: u64,
}

/// Checks the stored package.
pub(crate) async fn prepare(
    context: &Context,
    package: Stored,
    options: Options,
) -> Result<Prepared> {
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
            "`name` is missing; expected a name here or the name of the directory in the request",
        );
        invalid(vec![item])
    })?;
    check_names(context, &options.tenant, &name, &manifests)?;
    let registered = context.capsules.all(&options.tenant);
    let registered = registered.into_iter().find(|one| one.event.name == name);
    let changed = match &registered {
        Some(registered) => registered.sequence,
        None if options.updates_bases => last_change(context, &options.tenant, &name).await?,
        None => 0,
    };
    Ok(Prepared {
        registered,
        changed,
        name,
        package,
        manifests: Arc::new(manifests),
        options,
    })
}

/// Sequence of the last event of a capsule that is not registered; 0 for none.
async fn last_change(context: &Context, tenant: &Tenant, name: &CapsuleName) -> Result<u64> {
    let mut chain = CapsuleChain::new(tenant.clone(), name.clone());
    catch_up(context.runs.log().as_ref(), &mut chain).await?;
    Ok(chain.last().map_or(0, |(sequence, _)| sequence))
}

fn invalid(errors: Vec<ProblemItem>) -> Error {
    Error::new(
        ErrorCode::CapsuleInvalid,
        "the capsule directory is invalid",
    )
    .with_errors(errors)
}

/// Rejects a title or alias that is a name, title or alias of another capsule of the tenant.
fn check_names(
    context: &Context,
    tenant: &Tenant,
    name: &CapsuleName,
    manifests: &Package,
) -> Result<()> {
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
            let detail = format!(
                "{word:?} is already a name, title or alias of {}",
                other.name
            );
            return Err(Error::new(ErrorCode::NameAmbiguous, detail));
        }
    }
    Ok(())
}

impl Prepared {
    pub(crate) fn name(&self) -> &CapsuleName {
        &self.name
    }

    fn handoffs(&self) -> Handoffs {
        self.options.openness.handoffs(&self.manifests.tools)
    }

    fn needs(&self) -> Needs {
        self.options.openness.needs(&self.manifests.agent)
    }

    /// The registered version, if it is equal to the one that this capsule would get.
    pub(crate) fn unchanged(&self) -> Option<&Registered> {
        let registered = self.registered.as_ref()?;
        let registration = &registered.event;
        let is_unchanged = !self.options.updates_bases
            && registration.content == self.package.digest
            && registration.pool == self.options.pool
            && registration.handoffs == self.handoffs()
            // Registrations of older versions have no needs.
            && registration.needs == self.needs();
        is_unchanged.then_some(registered)
    }

    /// Whether the result of the build `run` counts at `now`. An update has a build of its own. Another build used the
    /// pins of the registered version, unless it was older: then it counts if it happens to have the pinned images.
    ///
    /// Without a registered version, only time tells a repeated request from a new update: a build counts as long as it
    /// could still run.
    fn accepts(&self, run: &Run, built: &Built, now: Timestamp) -> bool {
        let Some(registered) = &self.registered else {
            return !self.options.updates_bases || now < run.launched.event.deadline;
        };
        self.options.updates_bases
            || run.launched.sequence > registered.sequence
            || respects(&built.bases, &registered.event.bases)
    }
}

/// The run that builds the image: the existing one, or a new one if that failed.
pub(crate) async fn build(context: &Context, prepared: &Prepared) -> Result<Run> {
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
            // The image may have been deleted if the capsule was replaced since.
            Some(ended) => {
                let built = built(context, &ended.event).await?;
                if prepared.accepts(&run, &built, context.ports.clock.now())
                    && !deleted_artifacts::any_lost(context, &built.artifacts()).await?
                {
                    return Ok(run);
                }
            }
        }
    }
    let detail = format!(
        "{BUILDS_MAX} builds of this directory have failed: change it before you register it again"
    );
    Err(Error::new(ErrorCode::BuildFailed, detail))
}

fn build_id(prepared: &Prepared, number: u32) -> RunId {
    RunId::root_of_key(&build_key(prepared, b"build", number))
}

fn build_key(prepared: &Prepared, purpose: &[u8], number: u32) -> Digest {
    let mut hasher = Hasher::new();
    hasher.field(purpose);
    hasher.field(prepared.name.as_str().as_bytes());
    hasher.field(prepared.package.digest.as_bytes());
    hasher.field(prepared.options.pool.as_str().as_bytes());
    hasher.field(&number.to_be_bytes());
    // Builds of the default tenant keep the keys from before there were tenants.
    let tenant = &prepared.options.tenant;
    if !tenant.is_default() {
        hasher.field(tenant.as_str().as_bytes());
    }
    // Each version can be updated once; the next request updates the result. A removal makes earlier builds obsolete.
    if prepared.options.updates_bases {
        hasher.field(b"update");
        hasher.field(&prepared.changed.to_be_bytes());
    }
    hasher.finish()
}

fn launched(context: &Context, prepared: &Prepared) -> Result<Launched> {
    let Stored { digest, size_bytes } = prepared.package;
    let name = FileName::parse(PACKAGE_FILE_NAME)
        .map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
    Ok(Launched {
        tenant: prepared.options.tenant.clone(),
        work: Work::Build {
            name: prepared.name.clone(),
            content: digest,
            updates_bases: prepared.options.updates_bases,
        },
        payload: Payload::Inline(Value::Object(Map::new())),
        files: vec![FileEntry {
            name,
            digest,
            size_bytes,
        }],
        parent: None,
        lineage: Lineage::default(),
        placement: Placement::new(prepared.options.pool.clone(), Class::Root),
        resources: Resources {
            timeout_seconds: BUILD_SECONDS_MAX,
            ..Resources::default()
        },
        retries: Retries::default(),
        // The running time bounds fetching, building and storing together.
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
pub(crate) async fn register(context: &Shared, prepared: &Prepared, run: &Run) -> Result<u64> {
    let end = context
        .waiters
        .wait(context.runs.log().as_ref(), run.id, None)
        .await;
    let end = end.ok_or_else(|| {
        Error::new(
            ErrorCode::BrokerUnavailable,
            "the gateway is stopping and the build continues: send the request again",
        )
    })?;
    let built = built(context, &end.ended.event).await?;
    let registration = registration(context, prepared, built).await?;
    append(context, &prepared.options.tenant, registration).await
}

async fn built(context: &Context, ended: &Ended) -> Result<Built> {
    if let Some(error) = &ended.error {
        let code = ErrorCode::named(&error.code);
        let is_ours = error.source == ErrorSource::Platform;
        let mut refusal = Error::new(
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
        Error::new(
            ErrorCode::Internal,
            "the output of the build contains no image",
        )
        .because(error)
    })
}

/// The last lines of the build's output.
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
    built: Built,
) -> Result<Registration> {
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
        workflow: store_optional(context, manifests.workflow_yaml.as_ref()).await?,
        image: built.image,
        bases: built.bases,
        resources: manifests.agent.resources.clone(),
        handoffs: prepared.handoffs(),
        models: manifests.agent.model_grant(),
        needs: prepared.needs(),
        pool: prepared.options.pool.clone(),
        registered_by: prepared.options.registered_by.clone(),
    })
}

async fn store(context: &Context, bytes: &Bytes) -> Result<Digest> {
    let piece = stream::iter([Ok(bytes.clone())]).boxed();
    Ok(context.ports.artifacts.put_stream(piece).await?.digest)
}

async fn store_optional(context: &Context, bytes: Option<&Bytes>) -> Result<Option<Digest>> {
    match bytes {
        Some(bytes) => Ok(Some(store(context, bytes).await?)),
        None => Ok(None),
    }
}

/// Stores the registration and waits until this gateway has applied it.
async fn append(context: &Context, tenant: &Tenant, registration: Registration) -> Result<u64> {
    let about = format!("capsule/{}", registration.name);
    let event = Event::Registered(Box::new(registration));
    let subject = event.subject(tenant);
    let cloud_event = CloudEvent::new(context.runs.header(), about, None, event);
    let append = Append::of(subject, Guard::None, &cloud_event).map_err(|error| {
        Error::new(
            ErrorCode::CapsuleInvalid,
            "agent.yaml and tools.yaml are too large together; expected fewer or shorter entries",
        )
        .because(error)
    })?;
    let sequence = context.runs.log().append(append).await?;
    context.capsules.wait_applied(sequence).await;
    Ok(sequence)
}
