//! From a request to a launch: what roots and callees have in common.
//!
//! [`check`] holds a request against the capsule that it names, [`Checked::launch`] makes the launch of it, and
//! [`room_for_payload`] says whether the payload fits into the event. Shells bring what is registered, the time and the
//! size of the queue; they store what comes out.

mod files;
mod request;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use thiserror::Error;

pub use self::files::NameClash;
use self::files::{distinct_names, kind_of, referenced};
pub use self::request::Terms;
use self::request::request_digest;
use crate::capsule::{Registration, Resources};
use crate::contract::{self, Contract, Problem, ProblemCode};
use crate::digest::{Digest, Hasher};
use crate::error_code::ErrorCode;
use crate::event::EVENT_SIZE_BYTES_MAX;
use crate::file_name::{Directory, FileName};
use crate::flow::Held;
use crate::handoff::{Call, Lineage};
use crate::id::NodeId;
use crate::manifest::CapsuleName;
use crate::placement::{
    DEVICE_KINDS_MAX, LOCALITY_BYTES_MIN, Near, REQUIREMENTS_MAX, Requirements, Size,
};
use crate::run::{
    FileEntry, LIMIT_SECONDS_MAX, Launched, Limits, PAYLOAD_INLINE_BYTES_MAX, Parent, Payload,
    Placement, RETRIES_MAX, Rerun, Retries, Reuses, Run, TOTAL_SECONDS_DEFAULT, Work,
};
use crate::spending::Budget;
use crate::subject::{Class, Pool};
use crate::tenant::Tenant;
use crate::trace::TraceParent;

/// Longest running time that a request may ask for, in seconds: a day.
pub const TIMEOUT_SECONDS_MAX: u32 = 86_400;

/// What the envelope of an event takes, in bytes: ids, hashes, times and names of fields.
const ENVELOPE_BYTES_MAX: usize = 2 * 1024;

/// What a payload takes in the event that is an artifact, in bytes: its digest and size.
const PAYLOAD_ARTIFACT_BYTES: usize = 200;

/// What a caller wants to be run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Title, alias or name.
    pub target: String,
    pub arguments: Map<String, Value>,
    /// Files that are in the store already.
    pub files: Vec<FileEntry>,
    pub pool: Option<Pool>,
    /// Beside the requirements of the capsule.
    pub requirements: Requirements,
    pub timeout_seconds: Option<u32>,
    pub retries: Retries,
    /// As given, without defaults.
    pub limits: Limits,
    /// Of the whole tree; a callee gets the budget of its caller instead.
    pub budget: Budget,
}

/// Why a request does not become a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Rejection {
    /// A number of the request is out of its range.
    #[error("`{field}` must be {expected}")]
    OutOfRange {
        field: &'static str,
        expected: String,
    },
    #[error("the file names conflict")]
    Files(Vec<NameClash>),
    /// The arguments or files do not fit the schema; pointers lead into the arguments.
    #[error("the arguments or files do not match the schema of {capsule}")]
    Misfit {
        capsule: CapsuleName,
        problems: Vec<Problem>,
    },
    #[error(
        "capsule and request have {attributes} requirements and {devices} kinds of devices together; expected at most {REQUIREMENTS_MAX} and {DEVICE_KINDS_MAX}"
    )]
    Requirements { attributes: usize, devices: usize },
    #[error(
        "{files} files and {labels} labels do not fit into one event: pack the files into an archive"
    )]
    TooLarge { files: usize, labels: usize },
}

impl Rejection {
    /// The code of the error that the caller gets.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::OutOfRange { .. } | Self::Requirements { .. } => ErrorCode::RequestMalformed,
            Self::Files(_) => ErrorCode::FileRefused,
            // Only the size is wrong: the caller can pass a file instead.
            Self::Misfit { problems, .. } if problems.iter().all(is_size) => {
                ErrorCode::PayloadTooLarge
            }
            Self::Misfit { .. } => ErrorCode::ArgumentsInvalid,
            Self::TooLarge { .. } => ErrorCode::PayloadTooLarge,
        }
    }
}

fn is_size(problem: &Problem) -> bool {
    problem.code == ProblemCode::TooLarge
}

/// A request that fits its capsule.
#[derive(Clone, Debug)]
pub struct Checked {
    registration: Registration,
    payload: Value,
    files: Vec<FileEntry>,
    signature: Digest,
    pool: Pool,
    requirements: Requirements,
    resources: Resources,
    retries: Retries,
    limits: Limits,
    request: Digest,
}

/// Where a run comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    pub tenant: Tenant,
    /// None for a root.
    pub parent: Option<Parent>,
    /// What the run repeats, and whose result it takes over.
    pub rerun: Option<Rerun>,
    pub reuses: Option<Reuses>,
    pub lineage: Lineage,
    /// Of the whole tree.
    pub budget: Budget,
    pub deadline: Timestamp,
    pub requested_by: String,
    /// Of the request for the root.
    pub trace: Option<TraceParent>,
    pub labels: BTreeMap<String, String>,
    /// The order among runs that wait for admission.
    pub priority: i8,
    /// The buckets that the runs above it are in.
    pub shared: Vec<Held>,
    /// The node that has its files.
    pub near: Option<NodeId>,
}

/// What a callee has from its call, beside what its caller passes on.
#[derive(Clone, Debug)]
pub struct CallOrigin {
    /// The attempt of the caller that calls.
    pub attempt: u32,
    pub call_key: Digest,
    pub lineage: Lineage,
    pub rerun: Option<Rerun>,
    pub reuses: Option<Reuses>,
}

impl Origin {
    /// The origin of a callee of `caller`: tenant, budget, priority, trace and buckets are those of the tree, and the
    /// deadline is at most the caller's.
    pub fn of_callee(caller: &Run, call: CallOrigin, now: Timestamp) -> Self {
        let launched = &caller.launched.event;
        let admission = launched.admission.as_deref();
        let total = SignedDuration::from_secs(TOTAL_SECONDS_DEFAULT.into());
        Self {
            tenant: launched.tenant.clone(),
            parent: Some(Parent {
                run: caller.id,
                attempt: call.attempt,
                call_key: call.call_key,
                event: caller.last.hash,
            }),
            rerun: call.rerun,
            reuses: call.reuses,
            lineage: call.lineage,
            budget: launched.budget,
            deadline: caller.deadline().min(now + total),
            requested_by: caller.id.to_string(),
            trace: launched.trace,
            labels: BTreeMap::new(),
            priority: admission.map_or(0, |admission| admission.priority),
            shared: admission.map_or_else(Vec::new, |had| had.shared_below(caller.id)),
            near: caller.lease().and_then(|lease| lease.event.holder.node()),
        }
    }
}

/// Checks the numbers of a request, which do not depend on the capsule.
pub fn check_ranges(wanted: &Wanted) -> Result<(), Rejection> {
    let out_of_range = |field, expected| Err(Rejection::OutOfRange { field, expected });
    let timeout = wanted.timeout_seconds;
    if timeout.is_some_and(|seconds| !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds)) {
        let expected = format!("from 1 to {TIMEOUT_SECONDS_MAX}");
        return out_of_range("timeout_seconds", expected);
    }
    if wanted.retries.capsule > RETRIES_MAX || wanted.retries.time > RETRIES_MAX {
        return out_of_range("retries", format!("at most {RETRIES_MAX} of each kind"));
    }
    if !wanted.limits.are_possible() {
        let expected = format!("from 1 to {LIMIT_SECONDS_MAX} seconds each");
        return out_of_range("limits", expected);
    }
    Ok(())
}

/// Checks the arguments and files of `wanted` against `contract`, the schema of `registration`. Names of files are
/// relative to `directory`.
///
/// # Errors
/// All that is wrong with the arguments and files at once.
pub fn check(
    registration: Registration,
    contract: &Contract,
    wanted: &Wanted,
    directory: Directory,
) -> Result<Checked, Rejection> {
    let names = distinct_names(&wanted.files).map_err(Rejection::Files)?;
    let misfit = |problems| Rejection::Misfit {
        capsule: registration.name.clone(),
        problems,
    };
    let exists = |name: &str| kind_of(&names, name);
    let arguments = Value::Object(wanted.arguments.clone());
    let checked = contract
        .check_input(arguments, directory, &exists)
        .map_err(misfit)?;
    let payload = contract::rewrite(checked.payload, &checked.references, &FileName::clone)
        .map_err(misfit)?;
    let files = match directory {
        // A node stages every file that a text might name; files that the schema does not reference stay out.
        Directory::Outgoing => referenced(&wanted.files, &checked.references),
        _ => wanted.files.clone(),
    };
    let requirements = registration.needs.placement.clone();
    let requirements = requirements.and(&wanted.requirements);
    if !requirements.are_few() {
        return Err(Rejection::Requirements {
            attributes: requirements.attributes.len(),
            devices: requirements.devices.len(),
        });
    }
    let digests = files.iter().map(|file| (file.name.clone(), file.digest));
    let call = Call {
        target: &registration.name,
        arguments: &payload,
        files: &digests.collect(),
    };
    let mut resources = registration.resources.clone();
    resources.timeout_seconds = wanted.timeout_seconds.unwrap_or(resources.timeout_seconds);
    Ok(Checked {
        signature: call.signature(),
        request: request_digest(registration.name.as_str(), wanted),
        pool: wanted.pool.clone().unwrap_or(registration.pool.clone()),
        payload,
        files,
        requirements,
        resources,
        retries: wanted.retries,
        limits: wanted.limits.resolved(),
        registration,
    })
}

impl Checked {
    /// What is called with what.
    pub const fn signature(&self) -> Digest {
        self.signature
    }

    /// The payload after defaults, with the names that the callee finds.
    pub const fn payload(&self) -> &Value {
        &self.payload
    }

    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    pub const fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Adds a part of the request beside [`Wanted`] to the hash of the request: the [`Terms`] of a root, or what a rerun
    /// computes again.
    #[must_use]
    pub fn with_part(mut self, digest: &Digest) -> Self {
        let mut hasher = Hasher::new();
        hasher.field(self.request.as_bytes());
        hasher.field(digest.as_bytes());
        self.request = hasher.finish();
        self
    }

    /// The launch, without payload and admission; `size` is what its queue asks of nodes.
    pub fn launch(&self, origin: Origin, size: Option<Size>) -> Launched {
        let class = if origin.parent.is_some() {
            Class::Child
        } else {
            Class::Root
        };
        let registration = &self.registration;
        Launched {
            tenant: origin.tenant,
            work: Work::Capsule {
                name: registration.name.clone(),
                content: registration.content,
                image: registration.image.clone(),
                schema: registration.schema,
                handoffs: registration.handoffs.clone(),
                models: registration.models.clone().map(Box::new),
                needs: registration.needs.clone(),
                workflow: registration.workflow,
            },
            payload: Payload::Inline(Value::Null),
            files: self.files.clone(),
            parent: origin.parent,
            lineage: origin.lineage,
            placement: self.placement(class, origin.near, size),
            resources: self.resources.clone(),
            retries: self.retries,
            limits: self.limits,
            budget: origin.budget,
            deadline: origin.deadline,
            requested_by: origin.requested_by,
            labels: origin.labels,
            request: self.request,
            admission: None,
            requeued_from: None,
            rerun: origin.rerun.map(Box::new),
            reuses: origin.reuses,
            trace: origin.trace,
        }
    }

    fn placement(&self, class: Class, near: Option<NodeId>, size: Option<Size>) -> Placement {
        let bytes = self.files.iter().map(|file| file.size_bytes).sum();
        Placement {
            requirements: Requirements {
                size,
                ..self.requirements.clone()
            },
            near: near
                .map(|node| Near { node, bytes })
                .filter(|near| near.bytes >= LOCALITY_BYTES_MIN),
            ..Placement::new(self.pool.clone(), class)
        }
    }
}

/// How many bytes of payload fit into the event of `launched` beside everything else; a longer payload becomes an
/// artifact.
///
/// # Errors
/// [`Rejection::TooLarge`] when not even the digest of a payload fits.
pub fn room_for_payload(launched: &Launched) -> Result<usize, Rejection> {
    let rest = serde_json::to_vec(launched).expect("a launch is plain data");
    match (EVENT_SIZE_BYTES_MAX - ENVELOPE_BYTES_MAX).checked_sub(rest.len()) {
        Some(room) if room >= PAYLOAD_ARTIFACT_BYTES => Ok(room.min(PAYLOAD_INLINE_BYTES_MAX)),
        _ => Err(Rejection::TooLarge {
            files: launched.files.len(),
            labels: launched.labels.len(),
        }),
    }
}

#[cfg(test)]
mod tests;
