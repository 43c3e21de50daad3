//! The state events of a run and their contents. A stored event never changes its meaning.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FailureKind, Limits, Retries};
use super::{LeftOut, RunError};
use crate::capsule::{Handoffs, Image, ModelGrant, Needs, Resources};
use crate::digest::{Digest, Hasher};
use crate::file_name::FileName;
use crate::id::{GatewayId, IncarnationId, NodeId, RunId};
use crate::lineage::Lineage;
use crate::manifest::CapsuleName;
use crate::placement::{Near, Requirements};
use crate::rule::Admission;
use crate::spending::{Budget, Spent};
use crate::subject::{self, Class, Pool, Subject};
use crate::task::plan::{Ending, Position};
use crate::tenant::Tenant;
use crate::trace::TraceParent;

/// A state event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    #[serde(rename = "dev.aod.run.launched.v1")]
    Launched(Box<Launched>),
    /// Instead of a launch: the run waits for admission.
    #[serde(rename = "dev.aod.run.requested.v1")]
    Requested(Box<Launched>),
    /// The launch of a request that waited for admission.
    #[serde(rename = "dev.aod.run.admitted.v1")]
    Admitted(Admitted),
    /// The run waits for admission again: no node had free capacity for it while other runs waited for its buckets.
    #[serde(rename = "dev.aod.run.admission_returned.v1")]
    AdmissionReturned(Returned),
    /// Instead of a launch: the run does not start, and reuses a recorded result.
    #[serde(rename = "dev.aod.run.reused.v1")]
    Reused(Box<Launched>),
    #[serde(rename = "dev.aod.run.delivered.v1")]
    Delivered(Delivered),
    #[serde(rename = "dev.aod.run.leased.v1")]
    Leased(Lease),
    #[serde(rename = "dev.aod.run.attempt_lost.v1")]
    AttemptLost(AttemptLost),
    #[serde(rename = "dev.aod.run.attempt_refused.v1")]
    AttemptRefused(Refused),
    #[serde(rename = "dev.aod.run.attempt_failed.v1")]
    AttemptFailed(Box<AttemptFailed>),
    #[serde(rename = "dev.aod.run.step_ended.v1")]
    StepEnded(Box<StepEnded>),
    #[serde(rename = "dev.aod.run.cancel_requested.v1")]
    CancelRequested(CancelRequested),
    #[serde(rename = "dev.aod.run.ended.v1")]
    Ended(Box<Ended>),
    #[serde(rename = "dev.aod.run.sealed.v1")]
    Sealed(Sealed),
}

impl Event {
    /// The subject of the event of `run` of `tenant`.
    pub fn subject(&self, tenant: &Tenant, run: RunId) -> Subject {
        let kind = match self {
            Self::Launched(launched) => {
                return launch_subject(tenant, run, &launched.placement);
            }
            Self::Admitted(Admitted { placement, .. }) => {
                return launch_subject(tenant, run, placement);
            }
            Self::Requested(_) => "requested",
            Self::AdmissionReturned(_) => "admission_returned",
            Self::Reused(_) => "reused",
            Self::Delivered(_) => "delivered",
            Self::Leased(_) => "leased",
            Self::AttemptLost(_) => "attempt_lost",
            Self::AttemptRefused(_) => "attempt_refused",
            Self::AttemptFailed(_) => "attempt_failed",
            Self::StepEnded(_) => "step_ended",
            Self::CancelRequested(_) => "cancel_requested",
            Self::Ended(_) => "ended",
            Self::Sealed(_) => "sealed",
        };
        subject::run_event(tenant, run, kind)
    }

    /// The request, if this is the first event of a run.
    pub fn launched(&self) -> Option<&Launched> {
        match self {
            Self::Launched(launched) | Self::Requested(launched) | Self::Reused(launched) => {
                Some(launched)
            }
            _ => None,
        }
    }

    pub(super) fn into_launched(self) -> Option<Launched> {
        match self {
            Self::Launched(launched) | Self::Requested(launched) | Self::Reused(launched) => {
                Some(*launched)
            }
            _ => None,
        }
    }
}

fn launch_subject(tenant: &Tenant, run: RunId, placement: &Placement) -> Subject {
    subject::run_launch(tenant, run, &placement.queue(), placement.class)
}

/// JSON that may be too large for an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    Inline(Value),
    /// An artifact with the text.
    Artifact {
        digest: Digest,
        size_bytes: u64,
    },
}

impl Payload {
    /// The digest of its artifact; none if it is in the event.
    pub const fn digest(&self) -> Option<Digest> {
        match self {
            Self::Inline(_) => None,
            Self::Artifact { digest, .. } => Some(*digest),
        }
    }
}

/// Maximum number of labels of a run, and maximum length of a label's name and value, in bytes: events are small.
pub const LABELS_MAX: usize = 32;
pub const LABEL_BYTES_MAX: usize = 256;

/// Largest payload in an event, in bytes; a larger one is an artifact.
pub const PAYLOAD_INLINE_BYTES_MAX: usize = 16 * 1024;

/// A file by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub name: FileName,
    pub digest: Digest,
    pub size_bytes: u64,
}

/// The work of a node for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all that is done is the larger one"
)]
pub enum Work {
    /// Starts a capsule.
    Capsule {
        name: CapsuleName,
        content: Digest,
        image: Image,
        schema: Digest,
        handoffs: Handoffs,
        /// None for a capsule without a model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        models: Option<Box<ModelGrant>>,
        #[serde(default, skip_serializing_if = "Needs::is_nothing")]
        needs: Needs,
        /// For a task: its workflow, whose steps run instead of the command of the image.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<Digest>,
    },
    /// Builds the image of a capsule from its packed directory.
    Build {
        name: CapsuleName,
        content: Digest,
        /// Whether the build ignores the base images of the registered version.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        updates_bases: bool,
    },
}

impl Work {
    /// The capsule of the work.
    pub fn name(&self) -> &CapsuleName {
        match self {
            Self::Capsule { name, .. } | Self::Build { name, .. } => name,
        }
    }
}

/// Where a run may start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub pool: Pool,
    pub class: Class,
    /// Requirements for its node in addition to the pool.
    #[serde(default, skip_serializing_if = "Requirements::is_nothing")]
    pub requirements: Requirements,
    /// The node that has its files: preferred, not required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<Near>,
}

impl Placement {
    pub fn new(pool: Pool, class: Class) -> Self {
        Self {
            pool,
            class,
            requirements: Requirements::default(),
            near: None,
        }
    }

    /// The queue in which the run waits.
    pub fn queue(&self) -> Pool {
        self.requirements.queue(&self.pool)
    }
}

/// The caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub run: RunId,
    /// The attempt that made the call first.
    pub attempt: u32,
    pub call_key: Digest,
    /// The hash of the caller's event that the call was decided on.
    pub event: Digest,
}

/// A request for a run, after all its artifacts are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launched {
    /// The owner; the same in the whole tree.
    #[serde(default, skip_serializing_if = "Tenant::is_default")]
    pub tenant: Tenant,
    pub work: Work,
    /// The payload with defaults; file references are as the callee will find them.
    pub payload: Payload,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    #[serde(default)]
    pub lineage: Lineage,
    pub placement: Placement,
    pub resources: Resources,
    #[serde(default, skip_serializing_if = "Retries::is_none")]
    pub retries: Retries,
    /// With their defaults; launches of earlier versions have none.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
    /// The budget of the whole tree: the same in all its launches.
    #[serde(default, skip_serializing_if = "Budget::is_none")]
    pub budget: Budget,
    /// When the run must have ended, including queueing.
    pub deadline: Timestamp,
    /// A principal, or the parent's id.
    pub requested_by: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The hash of the request: an idempotency key with a different hash is an error.
    pub request: Digest,
    /// How the run waits for admission; none if no rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Box<Admission>>,
    /// The dead letter that was requeued as this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued_from: Option<RunId>,
    /// The recorded run that this run repeats, in a rerun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun: Option<Box<Rerun>>,
    /// The recorded result that the run reuses instead of starting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuses: Option<Reuses>,
    /// The trace of the root's request: the same in all launches of a tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

/// An admitted launch: the facts that nodes need before they read the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    pub placement: Placement,
    pub memory_bytes: u64,
    /// Thousandths of a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
}

/// A returned admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// The sequence of the admission.
    pub granted: u64,
}

/// How a run repeats a recorded run. Its callees are matched by the keys of their calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rerun {
    /// The recorded run that the rerun was requested for; its tree determines the images. The same in the whole tree.
    pub tree: RunId,
    /// The recorded run that this one repeats; none for a call that is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<RunId>,
    pub recompute: Recompute,
}

/// The recorded successes that a rerun computes again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// None: recorded successes of unchanged calls are reused.
    Nothing,
    /// The recorded runs on the path to the last of them, that run, and all runs below it.
    Way(Vec<RunId>),
    /// All.
    All,
}

/// A recorded result to reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reuses {
    pub run: RunId,
    /// Of the result.
    pub hash: Digest,
}

/// A node begins on a launch with suspiciously many deliveries without a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    pub node: NodeId,
    pub work: WorkPosition,
}

/// The position of a delivery in the work queue: a later one takes over from an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkPosition {
    /// When the queue received the launch, in milliseconds since 1970. A rebuilt queue receives the launch again.
    pub queue_created_ms: i64,
    pub sequence: u64,
    /// The number of this delivery of the launch, from 1.
    pub delivery: u64,
}

impl WorkPosition {
    /// Whether both are deliveries of one message of the queue.
    pub fn is_same_message(&self, other: &Self) -> bool {
        (self.queue_created_ms, self.sequence) == (other.queue_created_ms, other.sequence)
    }
}

/// The holder of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    Node {
        node: NodeId,
        incarnation: IncarnationId,
        work: WorkPosition,
        /// The subject that acknowledges the delivery, also for the node's next incarnation.
        ack_subject: String,
        /// Of the run's token, which the node shows to gateways.
        token_sha256: Digest,
    },
    /// A gateway that ends a run which no node will end.
    Gateway { gateway: GatewayId },
}

impl Holder {
    pub const fn node(&self) -> Option<NodeId> {
        match self {
            Self::Node { node, .. } => Some(*node),
            Self::Gateway { .. } => None,
        }
    }
}

/// A holder may act for the run until it ends the run or another holder takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Counts the leases of a run from 1. The number is a fence: writers with another number are rejected.
    pub attempt: u32,
    pub holder: Holder,
}

/// The current attempt ended without a result; the run waits for another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptLost {
    pub attempt: u32,
    pub error: RunError,
}

/// The node of the current attempt cannot run it; the run waits for another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub attempt: u32,
    pub node: NodeId,
    /// The error code is the kind of the refusal.
    pub error: RunError,
}

/// The current attempt failed, and the request has a retry left; the run waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFailed {
    pub attempt: u32,
    /// The retry that the failure uses up.
    pub kind: FailureKind,
    /// The outcome that the run would have had.
    pub outcome: Outcome,
    pub error: RunError,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Output of the container, stored for each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogsSummary>,
    /// The pause before the next attempt.
    pub pause_ms: u64,
}

/// Maximum executions of steps in a task. Each is an event, and the node that takes a task over reads all of them.
pub const STEPS_MAX: u32 = 1_000;

/// All files of a workspace, an artifact: a tar file, compressed with zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub digest: Digest,
    pub size_bytes: u64,
}

/// An execution of a step of a task has ended. Another holder of the run continues after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepEnded {
    pub attempt: u32,
    /// Counts the ended executions of the run from 1, at most [`STEPS_MAX`]. The number is a fence.
    pub number: u32,
    pub position: Position,
    pub ending: Ending,
    /// Its outputs, a JSON object of texts in an artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Payload>,
    /// The workspace after it; none if it had no process. Of steps that ran at the same time, only the last has it: a
    /// node that takes the task over runs all of them again if the last is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// The end of its process, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// When its process started, by the node's clock; none for a step without a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
}

/// Maximum characters of a reason that a person gives: of a cancel request, of a hold.
pub const REASON_LENGTH_MAX: usize = 1_000;

/// A request to end the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequested {
    pub requested_by: String,
    pub reason: String,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The end of a container's main process; one of the two is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// The result of a callee, which the caller's result commits to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildResult {
    pub run: RunId,
    pub hash: Digest,
}

/// Maximum callees that a result lists; more callees are one hash.
pub const CHILDREN_LISTED_MAX: usize = 64;

/// One hash of all callees of a run, if they are too many to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildrenSummary {
    pub count: u64,
    /// Of the ids and result hashes in the order of the ids, each field after its length.
    pub digest: Digest,
}

impl ChildrenSummary {
    /// Of all these results.
    pub fn of(children: &BTreeMap<RunId, Digest>) -> Self {
        let mut hasher = Hasher::new();
        for (run, hash) in children {
            hasher.field(run.token().as_bytes());
            hasher.field(hash.as_bytes());
        }
        Self {
            count: children.len() as u64,
            digest: hasher.finish(),
        }
    }
}

/// The notes of the attempt that ended a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotesSummary {
    /// The number of the last note.
    pub number: u32,
    /// The hash of the last note; every note names the hash of the previous one.
    pub hash: Digest,
}

/// The whole output of the container, an artifact of JSON lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsSummary {
    pub digest: Digest,
    pub size_bytes: u64,
    /// Bytes of output beyond the limit, which were dropped.
    pub dropped_bytes: u64,
}

/// The times of an attempt, by its node's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exited_at: Option<Timestamp>,
    /// Time between start and exit during which at least one call was open.
    #[serde(default)]
    pub waiting_ms: u64,
}

/// The usage of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Files and payload that the node provided.
    #[serde(default)]
    pub input_bytes: u64,
    /// The part of files and image that came from the artifact store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fetched_bytes: u64,
    /// Collected files.
    #[serde(default)]
    pub output_bytes: u64,
    /// Number of calls, including joined ones.
    #[serde(default)]
    pub calls: u32,
    /// Model usage of the attempt, if it called any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Spent>,
    /// Connections to external hosts, if the capsule may have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressUsage>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks in this way")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Data sent to and received from external hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressUsage {
    pub connections: u32,
    /// Number of refused connections.
    pub refused: u32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub attempt: u32,
    pub outcome: Outcome,
    /// The output of the capsule; after a failure its incomplete output, if that is an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Payload>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileEntry>,
    /// Output files that the node did not store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildResult>,
    /// Instead of `children`, if there are more than [`CHILDREN_LISTED_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children_summary: Option<ChildrenSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<NotesSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogsSummary>,
    #[serde(default)]
    pub timings: Timings,
    #[serde(default)]
    pub usage: Usage,
}

impl Ended {
    /// The end of an attempt of which only the outcome is known.
    pub fn without_start(attempt: u32, outcome: Outcome, error: RunError) -> Self {
        Self {
            attempt,
            outcome,
            output: None,
            files: Vec::new(),
            left_out: None,
            error: Some(error),
            exit: None,
            children: Vec::new(),
            children_summary: None,
            notes: None,
            logs: None,
            timings: Timings::default(),
            usage: Usage::default(),
        }
    }

    /// Commits to the results of all callees.
    pub fn set_children(&mut self, children: &BTreeMap<RunId, Digest>) {
        if children.len() <= CHILDREN_LISTED_MAX {
            self.children = children
                .iter()
                .map(|(&run, &hash)| ChildResult { run, hash })
                .collect();
            return;
        }
        self.children_summary = Some(ChildrenSummary::of(children));
    }
}

/// A gateway's signature over the result of a root, and so over the whole tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The hash of the root's result.
    pub result: Digest,
    /// All events of the tree before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SealedTree>,
    /// The public key, Ed25519, in hexadecimal.
    pub public_key: String,
    /// With `tree`: of `audit::signed_bytes`, in hexadecimal; without: of the 32 bytes of `result`.
    pub signature: String,
}

/// All events of a tree in one hash: state events, notes and spending events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedTree {
    pub events: u64,
    /// The sequence of the last event.
    pub last: u64,
    /// Of each event in the order of the log: its sequence as eight big-endian bytes, its subject and its hash, each
    /// after its length.
    pub digest: Digest,
}
