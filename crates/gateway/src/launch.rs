//! From a request to a stored launch: the checks that roots and callees share.

use std::collections::{BTreeMap, BTreeSet};

use aod_api::problem::ProblemItem;
use aod_domain::artifacts::{Role, named_by};
use aod_domain::capsule::Resources;
use aod_domain::contract::{self, FileKind, Problem, ProblemCode, Reference, canonical};
use aod_domain::digest::{Digest, Hasher};
use aod_domain::error_code::ErrorCode;
use aod_domain::event::EVENT_SIZE_BYTES_MAX;
use aod_domain::file_name::{Directory, FileName};
use aod_domain::flow::Held;
use aod_domain::handoff::{Call, Lineage};
use aod_domain::id::{NodeId, RunId};
use aod_domain::placement::{
    DEVICE_KINDS_MAX, LOCALITY_BYTES_MIN, Near, REQUIREMENTS_MAX, Requirements,
};
use aod_domain::run::{
    Command, Event, FileEntry, Launched, Limits, PAYLOAD_INLINE_BYTES_MAX, Parent, Payload,
    Placement, Rerun, Retries, Reuses, Run, Work,
};
use aod_domain::spending::Budget;
use aod_domain::subject::{Class, Label};
use aod_domain::tenant::Tenant;
use aod_domain::trace::TraceParent;
use aod_ports::event_log::EventLog;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::admission::admission_of;
use crate::catalogue::Registered;
use crate::context::Context;
use crate::gone;
use crate::http::error::{ApiError, ApiResult};
use crate::waiters::{RunEnd, Waiter};

/// What of an event's room its envelope takes, in bytes: ids, hashes, times and names of fields.
const ENVELOPE_BYTES_MAX: usize = 2 * 1024;

/// What somebody wants to be run.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Title, alias or name.
    pub(crate) target: String,
    pub(crate) arguments: Map<String, Value>,
    /// What is in the store already.
    pub(crate) files: Vec<FileEntry>,
    pub(crate) label: Option<Label>,
    /// Beside what the capsule requires itself.
    pub(crate) requirements: Requirements,
    pub(crate) timeout_seconds: Option<u32>,
    pub(crate) retries: Retries,
    /// As they were given.
    pub(crate) limits: Limits,
    /// Of the whole tree; a callee has its caller's, whatever stands here.
    pub(crate) budget: Budget,
}

/// A request that fits its capsule.
#[derive(Debug)]
pub(crate) struct Checked {
    registration: Registered,
    payload: Value,
    files: Vec<FileEntry>,
    pub(crate) signature: Digest,
    label: Label,
    requirements: Requirements,
    timeout_seconds: u32,
    retries: Retries,
    limits: Limits,
    request: Digest,
}

impl Checked {
    /// The same, as a request of its own: for the rerun that `digest` stands for.
    pub(crate) fn for_rerun(self, digest: &Digest) -> Self {
        let mut hasher = Hasher::new();
        hasher.field(self.request.as_bytes());
        hasher.field(digest.as_bytes());
        Self {
            request: hasher.finish(),
            ..self
        }
    }
}

/// Where a run comes from.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Whose the tree is.
    pub(crate) tenant: Tenant,
    pub(crate) parent: Option<Parent>,
    /// What it repeats, and whose result it takes over.
    pub(crate) rerun: Option<Rerun>,
    pub(crate) reuses: Option<Reuses>,
    pub(crate) lineage: Lineage,
    /// Of the whole tree.
    pub(crate) budget: Budget,
    pub(crate) deadline: Timestamp,
    pub(crate) requested_by: String,
    /// Of the request for the root.
    pub(crate) trace: Option<TraceParent>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Who goes first of those that wait for admission.
    pub(crate) priority: i8,
    /// The rooms that the runs above it are in.
    pub(crate) shared: Vec<Held>,
    /// The node that has its files.
    pub(crate) near: Option<NodeId>,
}

/// Checks the arguments and files of `wanted`, whose names are relative to `directory`. `prefix` is
/// where the arguments stand in the body.
pub(crate) async fn check(
    context: &Context,
    registration: Registered,
    wanted: &Wanted,
    directory: Directory,
    prefix: &str,
) -> ApiResult<Checked> {
    let names = distinct_names(&wanted.files)?;
    let schema = context.capsules.schema(&registration.event).await?;
    let exists = |name: &str| kind_of(&names, name);
    let checked = schema
        .contract
        .check_input(Value::Object(wanted.arguments.clone()), directory, &exists)
        .map_err(|problems| misfit(&registration, prefix, &problems))?;
    let payload = contract::rewrite(checked.payload, &checked.references, &FileName::clone)
        .map_err(|problems| misfit(&registration, prefix, &problems))?;

    let files = match directory {
        // A node stages whatever a text might name; what the schema makes no reference of stays out.
        Directory::Outgoing => referenced(&wanted.files, &checked.references),
        _ => wanted.files.clone(),
    };
    let digests = files
        .iter()
        .map(|file| (file.name.clone(), file.digest))
        .collect();
    let name = &registration.event.name;
    let signature = Call {
        target: name,
        arguments: &payload,
        files: &digests,
    }
    .signature();
    let request = request_digest(name.as_str(), wanted);
    let label = wanted
        .label
        .clone()
        .unwrap_or_else(|| registration.event.label.clone());
    let requirements = registration.event.needs.placement.clone();
    let requirements = requirements.and(&wanted.requirements);
    if !requirements.are_few() {
        let detail = format!(
            "{} requirements and {} kinds of devices of capsule and request together; at most {REQUIREMENTS_MAX} and {DEVICE_KINDS_MAX} are possible",
            requirements.attributes.len(),
            requirements.devices.len()
        );
        return Err(ApiError::malformed(detail));
    }
    let timeout_seconds = wanted
        .timeout_seconds
        .unwrap_or(registration.event.resources.timeout_seconds);
    Ok(Checked {
        registration,
        payload,
        files,
        signature,
        label,
        requirements,
        timeout_seconds,
        retries: wanted.retries,
        limits: wanted.limits.resolved(),
        request,
    })
}

/// A run that somebody may wait for.
pub(crate) struct Started {
    pub(crate) run: Run,
    pub(crate) waiter: Waiter,
}

impl Started {
    /// Waits as [`Waiter::wait`] does; a run that was joined may have ended before.
    pub(crate) async fn end(self, log: &dyn EventLog, until: Option<Instant>) -> Option<RunEnd> {
        match self.run.ended() {
            Some(end) => Some(RunEnd::of(end.clone())),
            None => self.waiter.wait(log, until).await,
        }
    }
}

/// Stores the launch of `id`, or joins the run that is there already.
pub(crate) async fn launch(
    context: &Context,
    id: RunId,
    checked: &Checked,
    origin: Origin,
) -> ApiResult<Started> {
    let launched = launched(context, checked, origin).await?;
    let recorded = launched.reuses.map(|reuses| reuses.run);
    let recorded = recorded.or(launched
        .rerun
        .as_ref()
        .map(|rerun| rerun.of.unwrap_or(rerun.tree)));
    if let Some(recorded) = recorded {
        // What is recorded is named once more, and may have been collected.
        let what = format!("what is recorded of {recorded}");
        let event = Event::Launched(Box::new(launched.clone()));
        let mut named = named_by(&event);
        // Nothing is started where a result is taken over.
        named.retain(|named| launched.reuses.is_none() || named.role != Role::Image);
        gone::renew(context, &what, named).await?;
    }
    if launched.reuses.is_none() {
        context.queues.ask(context, &launched.placement).await?;
    }
    let waiter = context.waiters.register(id);
    let run = context
        .runs
        .handle(id, &Command::Launch(Box::new(launched)), None)
        .await?;
    context
        .metrics
        .count_launch(run.launched.event.placement.class);
    Ok(Started { run, waiter })
}

/// Joins the run `id` if there is one.
pub(crate) async fn join(context: &Context, id: RunId) -> ApiResult<Option<Started>> {
    let waiter = context.waiters.register(id);
    let run = context.runs.load(id).await?;
    Ok(run.map(|run| Started { run, waiter }))
}

async fn launched(context: &Context, checked: &Checked, origin: Origin) -> ApiResult<Launched> {
    let registration = &checked.registration.event;
    let mut resources = registration.resources.clone();
    resources.timeout_seconds = checked.timeout_seconds;
    let class = if origin.parent.is_some() {
        Class::Child
    } else {
        Class::Root
    };
    let placement = placement(context, checked, &resources, class, origin.near).await?;
    let payload_bytes = canonical(&checked.payload);
    let mut launched = Launched {
        tenant: origin.tenant,
        work: Work::Capsule {
            name: registration.name.clone(),
            content: registration.content,
            image: registration.image.clone(),
            schema: registration.schema,
            handoffs: registration.handoffs.clone(),
            models: registration.models.clone().map(Box::new),
            needs: registration.needs.clone(),
        },
        payload: Payload::Inline(Value::Null),
        files: checked.files.clone(),
        parent: origin.parent,
        lineage: origin.lineage,
        placement,
        resources,
        retries: checked.retries,
        limits: checked.limits,
        budget: origin.budget,
        deadline: origin.deadline,
        requested_by: origin.requested_by,
        labels: origin.labels,
        request: checked.request,
        admission: None,
        requeued_from: None,
        rerun: origin.rerun.map(Box::new),
        reuses: origin.reuses,
        trace: origin.trace,
    };
    if launched.reuses.is_none() {
        launched.admission = admission_of(
            context,
            &launched,
            &checked.payload,
            origin.priority,
            origin.shared,
        )
        .await?;
    }
    let room = room_for_payload(&launched)?;
    launched.payload = if payload_bytes.len() <= room {
        Payload::Inline(checked.payload.clone())
    } else {
        store_payload(context, payload_bytes).await?
    };
    Ok(launched)
}

/// Where the run may start, and where its files are.
async fn placement(
    context: &Context,
    checked: &Checked,
    resources: &Resources,
    class: Class,
    near: Option<NodeId>,
) -> ApiResult<Placement> {
    let label = checked.label.clone();
    let size = context.queues.size(context, &label, resources).await?;
    let bytes = checked.files.iter().map(|file| file.size_bytes).sum();
    let near = near.map(|node| Near { node, bytes });
    Ok(Placement {
        requirements: Requirements {
            size,
            ..checked.requirements.clone()
        },
        near: near.filter(|near| near.bytes >= LOCALITY_BYTES_MIN),
        ..Placement::new(label, class)
    })
}

/// How many bytes of payload fit into the event beside everything else.
fn room_for_payload(launched: &Launched) -> ApiResult<usize> {
    let rest = serde_json::to_vec(launched)
        .expect("a launch is plain data")
        .len();
    match (EVENT_SIZE_BYTES_MAX - ENVELOPE_BYTES_MAX).checked_sub(rest) {
        // A payload that is an artifact takes the room of its digest.
        Some(room) if room >= 200 => Ok(room.min(PAYLOAD_INLINE_BYTES_MAX)),
        _ => {
            let detail = format!(
                "{} files and {} labels do not fit into one event: pack the files into fewer",
                launched.files.len(),
                launched.labels.len()
            );
            Err(ApiError::new(ErrorCode::PayloadTooLarge, detail))
        }
    }
}

async fn store_payload(context: &Context, bytes: Vec<u8>) -> ApiResult<Payload> {
    let piece = stream::iter([Ok(Bytes::from(bytes))]).boxed();
    let stored = context.ports.artifacts.put_stream(piece).await?;
    Ok(Payload::Artifact {
        digest: stored.digest,
        size_bytes: stored.size_bytes,
    })
}

/// The names of `files`, each once, none of them a directory of another.
fn distinct_names(files: &[FileEntry]) -> ApiResult<BTreeSet<FileName>> {
    let mut names = BTreeSet::new();
    let mut errors = Vec::new();
    for file in files {
        if !names.insert(file.name.clone()) {
            errors.push(ProblemItem::new(
                "/files",
                format!("{} is given twice", file.name),
            ));
        }
    }
    for name in &names {
        let parents = name
            .as_str()
            .match_indices('/')
            .map(|(end, _)| &name.as_str()[..end]);
        if let Some(parent) = parents.into_iter().find(|&parent| names.contains(parent)) {
            errors.push(ProblemItem::new(
                "/files",
                format!("{name} lies below {parent}, which is a file"),
            ));
        }
    }
    if errors.is_empty() {
        return Ok(names);
    }
    Err(ApiError::new(
        ErrorCode::FileRefused,
        "the names of the files contradict each other",
    )
    .with_errors(errors))
}

fn kind_of(names: &BTreeSet<FileName>, name: &str) -> Option<contract::FileKind> {
    if names.contains(name) {
        return Some(contract::FileKind::File);
    }
    let below = format!("{name}/");
    let is_directory = names.iter().any(|file| file.as_str().starts_with(&below));
    is_directory.then_some(contract::FileKind::Directory)
}

/// Those of `files` that are referred to, or lie in a directory that is.
fn referenced(files: &[FileEntry], references: &[Reference]) -> Vec<FileEntry> {
    let is_meant = |file: &&FileEntry| {
        references.iter().any(|reference| match reference.kind {
            FileKind::File => reference.name == file.name,
            FileKind::Directory => {
                let below = file.name.as_str().strip_prefix(reference.name.as_str());
                below.is_some_and(|rest| rest.starts_with('/'))
            }
        })
    };
    files.iter().filter(is_meant).cloned().collect()
}

/// The refusal of arguments, as 413 if only their size is wrong.
fn misfit(registration: &Registered, prefix: &str, problems: &[Problem]) -> ApiError {
    let is_size = problems
        .iter()
        .all(|problem| problem.code == ProblemCode::TooLarge);
    let code = if is_size {
        ErrorCode::PayloadTooLarge
    } else {
        ErrorCode::ArgumentsInvalid
    };
    let errors = problems
        .iter()
        .map(|problem| ProblemItem::within(prefix, problem))
        .collect();
    let detail = format!(
        "the arguments or files do not fit {}",
        registration.event.name
    );
    ApiError::new(code, detail).with_errors(errors)
}

/// What makes two requests the same: everything that the caller said.
fn request_digest(name: &str, wanted: &Wanted) -> Digest {
    let mut hasher = Hasher::new();
    hasher.field(name.as_bytes());
    hasher.field(&canonical(&Value::Object(wanted.arguments.clone())));
    let mut files: Vec<_> = wanted
        .files
        .iter()
        .map(|file| (file.name.as_str(), file.digest))
        .collect();
    files.sort_unstable();
    for (name, digest) in files {
        hasher.field(name.as_bytes());
        hasher.field(digest.as_bytes());
    }
    hasher.field(wanted.label.as_ref().map_or("", Label::as_str).as_bytes());
    hasher.field(&wanted.timeout_seconds.unwrap_or_default().to_be_bytes());
    if !wanted.retries.is_none() {
        hasher.field(&wanted.retries.capsule.to_be_bytes());
        hasher.field(&wanted.retries.time.to_be_bytes());
    }
    if !wanted.limits.is_none() {
        hasher.field(b"limits");
        hasher.field(&serde_json::to_vec(&wanted.limits).expect("numbers are plain data"));
    }
    if !wanted.requirements.is_nothing() {
        hasher.field(b"requirements");
        let requirements = serde_json::to_vec(&wanted.requirements);
        hasher.field(&requirements.expect("requirements are plain data"));
    }
    if !wanted.budget.is_none() {
        hasher.field(b"budget");
        hasher.field(&serde_json::to_vec(&wanted.budget).expect("numbers are plain data"));
    }
    hasher.finish()
}
