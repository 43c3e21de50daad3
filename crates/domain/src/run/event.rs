//! The state events of a run and what they hold. A stored shape never changes its meaning.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FailureKind, Limits, Retries};
use crate::capsule::{Handoffs, Image, ModelGrant, Needs, Resources};
use crate::digest::{Digest, Hasher};
use crate::error_code::{ErrorCode, ErrorSource};
use crate::event::EVENT_SIZE_BYTES_MAX;
use crate::file_name::FileName;
use crate::flow::Admission;
use crate::handoff::Lineage;
use crate::id::{GatewayId, IncarnationId, NodeId, RunId};
use crate::manifest::CapsuleName;
use crate::placement::{Near, Requirements};
use crate::spending::{Budget, Spent};
use crate::subject::{self, Class, Label, Subject};
use crate::tenant::Tenant;
use crate::trace::TraceParent;

/// What happens to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    #[serde(rename = "dev.aod.run.launch.v1")]
    Launched(Box<Launched>),
    /// Instead of a launch: it waits for admission.
    #[serde(rename = "dev.aod.run.request.v1")]
    Requested(Box<Launched>),
    /// The launch of a request that has waited for admission.
    #[serde(rename = "dev.aod.run.admitted.v1")]
    Admitted(Admitted),
    /// It waits for admission again: no node had room for it while others waited for its place.
    #[serde(rename = "dev.aod.run.returned.v1")]
    Returned(Returned),
    /// Instead of a launch: nothing is started, a recorded result is taken over.
    #[serde(rename = "dev.aod.run.reuse.v1")]
    Reused(Box<Launched>),
    #[serde(rename = "dev.aod.run.delivered.v1")]
    Delivered(Delivered),
    #[serde(rename = "dev.aod.run.lease.v1")]
    Leased(Lease),
    #[serde(rename = "dev.aod.run.attempt_lost.v1")]
    AttemptLost(AttemptLost),
    #[serde(rename = "dev.aod.run.refused.v1")]
    Refused(Refused),
    #[serde(rename = "dev.aod.run.attempt_failed.v1")]
    AttemptFailed(Box<AttemptFailed>),
    #[serde(rename = "dev.aod.run.cancel.v1")]
    CancelRequested(CancelRequested),
    #[serde(rename = "dev.aod.run.result.v1")]
    Ended(Box<Ended>),
    #[serde(rename = "dev.aod.run.sealed.v1")]
    Sealed(Sealed),
}

impl Event {
    /// Where the event of `run`, which is `tenant`'s, is stored.
    pub fn subject(&self, tenant: &Tenant, run: RunId) -> Subject {
        let kind = match self {
            Self::Launched(launched) => {
                return launch_subject(tenant, run, &launched.placement);
            }
            Self::Admitted(Admitted { placement, .. }) => {
                return launch_subject(tenant, run, placement);
            }
            Self::Requested(_) => "request",
            Self::Returned(_) => "returned",
            Self::Reused(_) => "reuse",
            Self::Delivered(_) => "delivered",
            Self::Leased(_) => "lease",
            Self::AttemptLost(_) => "attempt_lost",
            Self::Refused(_) => "refused",
            Self::AttemptFailed(_) => "attempt_failed",
            Self::CancelRequested(_) => "cancel",
            Self::Ended(_) => "result",
            Self::Sealed(_) => "sealed",
        };
        subject::run_event(tenant, run, kind)
    }

    /// What is asked for, of the first event of a run.
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
    /// The text is an object of the artifact store.
    Artifact {
        digest: Digest,
        size_bytes: u64,
    },
}

/// Largest payload that an event holds, in bytes; a larger one is an artifact.
pub const PAYLOAD_INLINE_BYTES_MAX: usize = 16 * 1024;

/// A file by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub name: FileName,
    pub digest: Digest,
    pub size_bytes: u64,
}

/// What a node does for a run.
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
    },
    /// Builds the image of a capsule from its packed directory.
    Build { name: CapsuleName, content: Digest },
}

impl Work {
    /// The capsule it is about.
    pub fn name(&self) -> &CapsuleName {
        match self {
            Self::Capsule { name, .. } | Self::Build { name, .. } => name,
        }
    }
}

/// Where a run may be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub label: Label,
    pub class: Class,
    /// What its node must have besides.
    #[serde(default, skip_serializing_if = "Requirements::is_nothing")]
    pub requirements: Requirements,
    /// Where its files are, which is better but not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<Near>,
}

impl Placement {
    pub fn new(label: Label, class: Class) -> Self {
        Self {
            label,
            class,
            requirements: Requirements::default(),
            near: None,
        }
    }

    /// The queue in which the run waits.
    pub fn queue(&self) -> Label {
        self.requirements.queue(&self.label)
    }
}

/// The run that called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub run: RunId,
    /// The attempt that called first.
    pub attempt: u32,
    pub call_key: Digest,
    /// The hash of the parent's event that the call was decided on.
    pub event: Digest,
}

/// A run was asked for, and everything that it needs is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launched {
    /// Whose the run is: the same in the whole tree.
    #[serde(default, skip_serializing_if = "Tenant::is_default")]
    pub tenant: Tenant,
    pub work: Work,
    /// The payload after defaults, file references as the callee will find them.
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
    /// What the whole tree may spend on models: the same in all its launches.
    #[serde(default, skip_serializing_if = "Budget::is_none")]
    pub budget: Budget,
    /// When it must have ended, queueing included.
    pub deadline: Timestamp,
    /// Who asked: a principal, or the parent's id.
    pub requested_by: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The hash of the request: the same idempotency key with another one is a mistake.
    pub request: Digest,
    /// How it waits for admission; none where no rule is for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Box<Admission>>,
    /// The dead letter whose request this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued_from: Option<RunId>,
    /// What the run repeats, in a tree that is a rerun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun: Option<Box<Rerun>>,
    /// The recorded result that it takes over instead of being started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuses: Option<Reuses>,
    /// The trace that the root's request belongs to: the same in all launches of a tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

/// A request may go: what nodes must know before they read the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    pub placement: Placement,
    pub memory_bytes: u64,
    /// Thousandths of a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
}

/// An admission was of no use, and is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// Its sequence.
    pub granted: u64,
}

/// How a run repeats what is recorded. Its callees are found by the keys of their calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rerun {
    /// The run that was asked for again: its tree says which images are used. The same in the whole tree.
    pub tree: RunId,
    /// The recorded run that this one repeats; none for a call that was not made then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<RunId>,
    pub anew: Anew,
}

/// What a rerun starts anew although a success of it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Anew {
    /// Nothing: recorded successes of unchanged calls are taken over.
    Nothing,
    /// The recorded runs on the way to the last of them, that one, and all below it.
    Way(Vec<RunId>),
    /// Everything.
    All,
}

/// A recorded result that is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reuses {
    pub run: RunId,
    /// Of its result.
    pub hash: Digest,
}

/// A node begins on a delivery of a launch that was delivered suspiciously often without a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    pub node: NodeId,
    pub work: WorkPosition,
}

/// The place of a delivery in the work queue: a later one takes over from an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkPosition {
    /// When the queue took the launch in, in milliseconds since 1970: the queue is derived, so it
    /// can be made anew and then takes it in again.
    pub queue_created_ms: i64,
    pub sequence: u64,
    /// How often the launch was delivered, from 1.
    pub delivery: u64,
}

impl WorkPosition {
    /// Whether both are deliveries of one message of the queue.
    pub fn is_same_message(&self, other: &Self) -> bool {
        (self.queue_created_ms, self.sequence) == (other.queue_created_ms, other.sequence)
    }
}

/// Who has a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    Node {
        node: NodeId,
        incarnation: IncarnationId,
        work: WorkPosition,
        /// Where the delivery is acknowledged, also by the node's next incarnation.
        ack_subject: String,
        /// Of the token with which the node speaks for the run.
        token_sha256: Digest,
    },
    /// A gateway that ends a run which no node will end.
    Gateway { gateway: GatewayId },
}

/// A holder may act for the run, from now until it ends the run or another takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Counts the leases of a run from 1. It fences: whoever comes with another number is refused.
    pub attempt: u32,
    pub holder: Holder,
}

/// The current attempt ended without a result; the run waits for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptLost {
    pub attempt: u32,
    pub error: RunError,
}

/// The node that holds the current attempt cannot run it, another may; the run waits for that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub attempt: u32,
    pub node: NodeId,
    /// Its code is the kind of the refusal.
    pub error: RunError,
}

/// The current attempt failed, and the request wants another; the run waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFailed {
    pub attempt: u32,
    /// Which of the retries this uses up.
    pub kind: FailureKind,
    /// What the run would have ended with.
    pub outcome: Outcome,
    pub error: RunError,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// What the container wrote, kept with each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogsSummary>,
    /// How long the run rests before the next attempt.
    pub pause_ms: u64,
}

/// Somebody wants the run to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequested {
    pub requested_by: String,
    pub reason: String,
}

/// How a run ended.
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

/// Why a run failed, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// An [`ErrorCode`], or with `source` `capsule` a code of the capsule's own.
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
    pub retryable: bool,
    pub source: ErrorSource,
}

impl RunError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.as_str().into(),
            message: message.into(),
            detail: None,
            retryable: code.is_retryable(),
            source: code.source(),
        }
    }

    /// The same, small enough for an event: what is too long is cut, of details that are too large
    /// only the last lines of output stay.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        cut(&mut self.code, ERROR_CODE_BYTES_MAX);
        cut(&mut self.message, ERROR_MESSAGE_BYTES_MAX);
        let is_too_large = |detail: &Value| detail.to_string().len() > ERROR_DETAIL_BYTES_MAX;
        if self.detail.as_ref().is_some_and(is_too_large) {
            let lines = self
                .detail
                .as_ref()
                .and_then(|detail| detail.get("last_lines"));
            let lines = lines.map(|lines| serde_json::json!({"last_lines": lines}));
            self.detail = lines.filter(|lines| !is_too_large(lines));
        }
        self
    }

    #[must_use]
    pub fn with_detail(mut self, detail: Value) -> Self {
        self.detail = Some(detail);
        self
    }
}

/// Bytes of an error in an event, each as JSON has them; together half of what an event holds.
const ERROR_CODE_BYTES_MAX: usize = 256;
const ERROR_MESSAGE_BYTES_MAX: usize = 4 * 1024;
const ERROR_DETAIL_BYTES_MAX: usize = 12 * 1024;

/// Shortens `text` until its JSON has at most `bytes_max` bytes.
fn cut(text: &mut String, bytes_max: usize) {
    let json_bytes = |text: &str| Value::from(text).to_string().len();
    let mut length = text.chars().count();
    while json_bytes(text) > bytes_max {
        // Never longer than so many characters; of those that take more the half goes each time.
        length = (length / 2).min(bytes_max);
        *text = text.chars().take(length).chain(['…']).collect();
    }
}

/// How a container's main process ended; one of the two is set.
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

/// Callees that a result lists one by one; of more it holds one hash.
pub const CHILDREN_LISTED_MAX: usize = 64;

/// Bytes of an event that its envelope takes at the most: ids, hashes, times and names of fields.
const ENVELOPE_BYTES_MAX: usize = 2 * 1024;

/// All callees of a run in one hash, where they are too many to be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildrenSummary {
    pub count: u64,
    /// Of the ids and result hashes in the order of the ids, each field with its length before it.
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
    /// The number of the last one.
    pub number: u32,
    /// Its hash; every note names the hash of the one before it.
    pub hash: Digest,
}

/// The container's whole output, kept as an artifact of JSON lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsSummary {
    pub digest: Digest,
    pub size_bytes: u64,
    /// Bytes of output beyond the limit, which were dropped.
    pub dropped_bytes: u64,
}

/// When an attempt did what, by its node's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exited_at: Option<Timestamp>,
    /// Of the time between start and exit, how long at least one call was open.
    #[serde(default)]
    pub waiting_ms: u64,
}

/// What a run used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Files and payload brought to the node.
    #[serde(default)]
    pub input_bytes: u64,
    /// What of files and image was not on the node and came from the artifact store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fetched_bytes: u64,
    /// Files collected.
    #[serde(default)]
    pub output_bytes: u64,
    /// Calls made, joined ones included.
    #[serde(default)]
    pub calls: u32,
    /// What the attempt took of models, if it called any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Spent>,
    /// Connections to hosts outside, of a capsule that may have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressUsage>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks in this way")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a run sent to hosts outside, and got from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressUsage {
    pub connections: u32,
    /// Connections that were refused.
    pub refused: u32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// The one terminal event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub attempt: u32,
    pub outcome: Outcome,
    /// What the capsule returned; with a failure what it wrote so far, if that is an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Payload>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildResult>,
    /// Instead of `children`, where there are more than [`CHILDREN_LISTED_MAX`].
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
    /// The end of an attempt of which nothing but its outcome is known.
    pub fn without_start(attempt: u32, outcome: Outcome, error: RunError) -> Self {
        Self {
            attempt,
            outcome,
            output: None,
            files: Vec::new(),
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

    /// Whether an event can hold this: only long lists of files make it too large.
    pub fn fits_event(&self) -> bool {
        let size_bytes = serde_json::to_vec(self).map_or(usize::MAX, |bytes| bytes.len());
        size_bytes <= EVENT_SIZE_BYTES_MAX - ENVELOPE_BYTES_MAX
    }
}

/// A gateway signed the result of a root, and with it the whole tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The hash of the root's result.
    pub result: Digest,
    /// Everything that the log had of the tree before this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SealedTree>,
    /// The public key, Ed25519, in hexadecimal.
    pub public_key: String,
    /// With `tree` of [`crate::audit::signed_bytes`], in hexadecimal; without, of the 32 bytes of `result`.
    pub signature: String,
}

/// All events of a tree in one hash: state events, notes and what was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedTree {
    pub events: u64,
    /// The sequence of the last of them.
    pub last: u64,
    /// Of each event in the order of the log: its sequence as eight bytes, the highest first, its subject and
    /// its hash, each with its length before it.
    pub digest: Digest,
}
