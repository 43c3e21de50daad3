//! Every way a request or a run can go wrong, by the name that people and programs see.
//!
//! Each code has a page in `docs/errors/`; a test of the whole repository compares.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who can mend what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorSource {
    /// The capsule's author.
    Capsule,
    /// Whoever asked for the run.
    Caller,
    /// The operator; AOD tries again by itself.
    Platform,
}

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident => $text:literal, $source:ident, $retryable:literal, $title:literal;)*) => {
        /// A named way to fail; as text snake_case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[$doc])* #[doc = $title] #[serde(rename = $text)] $variant,)*
        }

        impl ErrorCode {
            /// All of them, in the order of the reference.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Who can mend it.
            pub const fn source(self) -> ErrorSource {
                match self { $(Self::$variant => ErrorSource::$source,)* }
            }

            /// Whether the same request may succeed later.
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$variant => $retryable,)* }
            }

            /// What it means, for a heading.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

error_codes! {
    // A run has failed.
    CapsuleExit => "capsule_exit", Capsule, false, "the capsule ended with an exit code other than 0";
    CapsuleError => "capsule_error", Capsule, false, "the capsule reported an error of its own";
    CommandUnusable => "command_unusable", Capsule, false, "the image's command cannot be started";
    OutputMissing => "output_missing", Capsule, false, "the capsule wrote no output.json";
    OutputMalformed => "output_malformed", Capsule, false, "output.json is not a JSON object";
    OutputInvalid => "output_invalid", Capsule, false, "output.json does not fit the output schema";
    OutputFileMissing => "output_file_missing", Capsule, false, "output.json names a file that is not there";
    OutputFileRefused => "output_file_refused", Capsule, false, "an output is not a regular file, or its name is not allowed";
    OutputTooLarge => "output_too_large", Capsule, false, "the outputs are larger than a run may hand over";
    TimedOut => "timed_out", Caller, true, "the run took longer than its time limit";
    QueueTimedOut => "queue_timed_out", Caller, true, "no node took the run in the time that it may be queued";
    HeartbeatMissed => "heartbeat_missed", Caller, true, "the capsule showed no sign of life in time";
    DeadlineExceeded => "deadline_exceeded", Caller, true, "the run was not done by its total deadline";
    OutOfMemory => "out_of_memory", Capsule, true, "the capsule needed more memory than its limit";
    DiskQuota => "disk_quota", Capsule, false, "the capsule wrote more than its disk limit";
    AdmissionDeadlock => "admission_deadlock", Platform, true, "the run and others waited for one another by rules";
    Cancelled => "cancelled", Caller, true, "the run was cancelled";
    DeadLetter => "dead_letter", Platform, true, "the run was given up: no attempt came to a result";
    NodeLost => "node_lost", Platform, true, "the attempt lost its node";
    ImageUnavailable => "image_unavailable", Platform, true, "the image cannot be brought to the node";
    ImageUserRefused => "image_user_refused", Capsule, false, "the image names a user that this node may not start";
    BuildFailed => "build_failed", Capsule, false, "the image cannot be built";
    InputUnavailable => "input_unavailable", Platform, true, "an input file cannot be brought to the node";
    PreparationTimedOut => "preparation_timed_out", Platform, true, "image and files were not brought to the node in time";
    CollectionTimedOut => "collection_timed_out", Platform, true, "outputs and logs were not stored in time";
    NodeUnfit => "node_unfit", Platform, true, "the node cannot run the capsule, and no other was there that could";
    SecretMissing => "secret_missing", Platform, true, "the operator keeps no such secret, or it cannot be used";
    RuntimeFailed => "runtime_failed", Platform, true, "the container runtime failed";
    // A request is refused.
    RequestMalformed => "request_malformed", Caller, false, "the request cannot be read";
    Unauthorized => "unauthorized", Caller, false, "the request carries no valid token";
    NotPermitted => "not_permitted", Caller, false, "the token does not permit this";
    TargetNotAllowed => "target_not_allowed", Caller, false, "the caller may not call this capsule";
    UnknownCapsule => "unknown_capsule", Caller, false, "no capsule of this name is registered";
    UnknownRun => "unknown_run", Caller, false, "no run of this id is known";
    UnknownDeadLetter => "unknown_dead_letter", Caller, false, "no dead letter of this id is known";
    UnknownNode => "unknown_node", Caller, false, "no node of this id is known";
    UnknownRule => "unknown_rule", Caller, false, "there is no rule of this name";
    UnknownToken => "unknown_token", Caller, false, "there is no token of this id";
    UnknownPolicy => "unknown_policy", Caller, false, "there is no retention policy of this name";
    UnknownHold => "unknown_hold", Caller, false, "the tree of this run is not held";
    UnknownFile => "unknown_file", Caller, false, "no file of this name belongs to the run";
    ArtifactCollected => "artifact_collected", Caller, false, "the file or log was collected and is gone";
    UnknownRoute => "unknown_route", Caller, false, "nothing is served at this address";
    TokenExists => "token_exists", Caller, false, "there is a token of this name already";
    KeyReused => "key_reused", Caller, false, "the idempotency key belongs to another request";
    RunEnded => "run_ended", Caller, false, "the run has ended already";
    RunNotEnded => "run_not_ended", Caller, true, "the run has not ended yet";
    CallCycle => "call_cycle", Caller, false, "the call repeats one of its own callers";
    CallTooDeep => "call_too_deep", Caller, false, "calls are nested too deep";
    PayloadTooLarge => "payload_too_large", Caller, false, "the payload is larger than allowed; pass a file";
    ArgumentsInvalid => "arguments_invalid", Caller, false, "the arguments or files do not fit the capsule's schema";
    FileRefused => "file_refused", Caller, false, "a file of the request is not a regular file, or its name is not allowed";
    CapsuleInvalid => "capsule_invalid", Caller, false, "the capsule directory does not follow the standard";
    NameAmbiguous => "name_ambiguous", Caller, false, "the name stands for more than one capsule";
    TooManyCalls => "too_many_calls", Caller, true, "the run has too many calls in flight or in its tree";
    CallsExhausted => "calls_exhausted", Caller, false, "the caller has made all calls of this capsule that it may make";
    ModelNotAllowed => "model_not_allowed", Capsule, false, "agent.yaml does not name this model";
    UnknownProvider => "unknown_provider", Platform, false, "the operator has no such provider of models";
    ModelUnpriced => "model_unpriced", Platform, false, "a cost is limited and the model has no price";
    BudgetExhausted => "budget_exhausted", Caller, false, "the call of a model could exceed what may be spent";
    ModelKeyMissing => "model_key_missing", Platform, false, "the operator has no key for the provider of the model";
    ModelUnreachable => "model_unreachable", Platform, true, "the provider of the model cannot be reached";
    EgressRefused => "egress_refused", Caller, false, "the capsule may not connect to this host";
    EgressUnreachable => "egress_unreachable", Platform, true, "a host outside cannot be reached";
    TooManyQueues => "too_many_queues", Caller, true, "runs wait for too many different requirements";
    LogFull => "log_full", Platform, true, "the event log is nearly full and takes no new roots";
    DiskFull => "disk_full", Platform, true, "a disk is nearly full and takes no new roots";
    StoreUnavailable => "store_unavailable", Platform, true, "the artifact store does not answer";
    BrokerUnavailable => "broker_unavailable", Platform, true, "the broker does not answer";
    Internal => "internal", Platform, false, "a bug in AOD";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
