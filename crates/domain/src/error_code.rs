//! The error codes of requests and runs. Each code has a page in `docs/errors/`, the source of what programs say about
//! it; `tests/error_pages.rs` compares them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Maximum length of the error code of a capsule, in characters.
pub const CODE_LENGTH_MAX: usize = 64;

/// Whether a capsule may report `code` as the code of its error: a lowercase letter, then a-z, 0-9 and `_`.
pub fn is_wellformed(code: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    code.len() <= CODE_LENGTH_MAX
        && code.starts_with(|first: char| first.is_ascii_lowercase())
        && code.bytes().all(allowed)
}

/// The party that can fix an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorSource {
    Capsule,
    /// The caller that sent the request.
    Caller,
    /// The operator; AOD retries by itself.
    Platform,
}

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident => $text:literal, $source:ident, $retryable:literal, $title:literal;)*) => {
        /// A named error; as text snake_case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[$doc])* #[doc = $title] #[serde(rename = $text)] $variant,)*
        }

        impl ErrorCode {
            /// All codes, in the order of the reference.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The party that can fix the error.
            pub const fn source(self) -> ErrorSource {
                match self { $(Self::$variant => ErrorSource::$source,)* }
            }

            /// Whether the same request, unchanged, can succeed later.
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$variant => $retryable,)* }
            }

            /// The page of the code in `docs/errors`, as Markdown.
            pub const fn page(self) -> &'static str {
                match self {
                    $(Self::$variant => include_str!(concat!("../../../docs/errors/", $text, ".md")),)*
                }
            }

            /// The meaning of the code, for a heading.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

error_codes! {
    // Failures of runs.
    CapsuleExit => "capsule_exit", Capsule, false, "the capsule ended with an exit code other than 0";
    CapsuleError => "capsule_error", Capsule, false, "the capsule reported its own error";
    CommandUnusable => "command_unusable", Capsule, false, "the node cannot start the image's command";
    OutputMissing => "output_missing", Capsule, false, "the capsule wrote no output.json";
    OutputMalformed => "output_malformed", Capsule, false, "output.json is not a JSON object";
    OutputInvalid => "output_invalid", Capsule, false, "output.json does not match the output schema";
    OutputFileMissing => "output_file_missing", Capsule, false, "output.json names a file that does not exist";
    OutputFileRefused => "output_file_refused", Capsule, false, "an output is not a regular file, or its name is not allowed";
    OutputTooLarge => "output_too_large", Capsule, false, "the outputs exceed the limits of a run";
    TimedOut => "timed_out", Caller, true, "the run took longer than its time limit";
    QueueTimedOut => "queue_timed_out", Caller, true, "no node started the run within its queue limit";
    HeartbeatMissed => "heartbeat_missed", Caller, true, "the capsule sent no heartbeat within its limit";
    DeadlineExceeded => "deadline_exceeded", Caller, true, "the run did not end before its deadline";
    StepFailed => "step_failed", Capsule, false, "a step of the task failed";
    TaskPartial => "task_partial", Capsule, false, "steps of the task failed, and the others ran";
    TaskTooLong => "task_too_long", Capsule, false, "the task has more executions of steps than a task may have";
    OutOfMemory => "out_of_memory", Capsule, true, "the capsule needed more memory than its limit";
    DiskQuota => "disk_quota", Capsule, false, "the capsule wrote more than its disk limit";
    AdmissionDeadlock => "admission_deadlock", Platform, true, "flow-control rules made runs wait for each other";
    Cancelled => "cancelled", Caller, true, "the run was cancelled";
    DeadLetter => "dead_letter", Platform, true, "the run is dead-lettered: no attempt produced a result";
    NodeLost => "node_lost", Platform, true, "the node of the attempt stopped or is unreachable";
    ImageUnavailable => "image_unavailable", Platform, true, "the node cannot load the image";
    ImageUserRefused => "image_user_refused", Capsule, false, "the image requires a user that the node does not allow";
    BuildFailed => "build_failed", Capsule, false, "Docker cannot build the image";
    InputUnavailable => "input_unavailable", Platform, true, "the node cannot load an input file";
    PreparationTimedOut => "preparation_timed_out", Platform, true, "the node did not get the image and files within the time limit";
    CollectionTimedOut => "collection_timed_out", Platform, true, "the node did not store the outputs within the time limit";
    NodeUnfit => "node_unfit", Platform, true, "the node cannot run the capsule, and no suitable node is left";
    SecretMissing => "secret_missing", Platform, true, "a secret that the capsule requires is missing or unusable";
    RuntimeFailed => "runtime_failed", Platform, true, "the container runtime failed";
    // Rejected requests.
    RequestMalformed => "request_malformed", Caller, false, "the request is malformed";
    Unauthorized => "unauthorized", Caller, false, "the request has no valid token";
    NotPermitted => "not_permitted", Caller, false, "the token does not permit this request";
    TargetNotAllowed => "target_not_allowed", Caller, false, "the caller may not call this capsule";
    UnknownCapsule => "unknown_capsule", Caller, false, "no capsule with this name is registered";
    UnknownRun => "unknown_run", Caller, false, "no run has this id";
    UnknownDeadLetter => "unknown_dead_letter", Caller, false, "no dead letter has this id";
    UnknownNode => "unknown_node", Caller, false, "no node has this id";
    UnknownRule => "unknown_rule", Caller, false, "no rule has this name";
    UnknownToken => "unknown_token", Caller, false, "no token has this id";
    UnknownPolicy => "unknown_policy", Caller, false, "no retention policy has this name";
    UnknownHold => "unknown_hold", Caller, false, "the tree of this run has no hold";
    UnknownFile => "unknown_file", Caller, false, "the run has no file with this name";
    ArtifactDeleted => "artifact_deleted", Caller, false, "garbage collection deleted the file or log";
    UnknownRoute => "unknown_route", Caller, false, "the API has no such route";
    TokenExists => "token_exists", Caller, false, "a token with this name exists already";
    KeyReused => "key_reused", Caller, false, "the idempotency key belongs to a different request";
    RunEnded => "run_ended", Caller, false, "the run has ended already";
    RunNotEnded => "run_not_ended", Caller, true, "the run has not ended yet";
    CallCycle => "call_cycle", Caller, false, "infinite recursion: the call repeats a call above it";
    CallTooDeep => "call_too_deep", Caller, false, "calls are nested too deeply";
    PayloadTooLarge => "payload_too_large", Caller, false, "the payload is larger than allowed; pass a file";
    ArgumentsInvalid => "arguments_invalid", Caller, false, "the arguments or files do not match the capsule's schema";
    FileRefused => "file_refused", Caller, false, "a file of the request is not a regular file, or its name is not allowed";
    CapsuleInvalid => "capsule_invalid", Caller, false, "the capsule directory is invalid";
    NameAmbiguous => "name_ambiguous", Caller, false, "the name matches more than one capsule";
    TooManyCalls => "too_many_calls", Caller, true, "the run has too many concurrent calls, or its tree has too many runs";
    CallsExhausted => "calls_exhausted", Caller, false, "the caller has reached its maximum number of calls to this capsule";
    ModelNotAllowed => "model_not_allowed", Capsule, false, "agent.yaml does not name this model";
    UnknownProvider => "unknown_provider", Platform, false, "the operator has not configured this model provider";
    ModelUnpriced => "model_unpriced", Platform, false, "a cost limit applies, but the model has no price";
    BudgetExhausted => "budget_exhausted", Caller, false, "the model call could exceed a budget";
    ModelKeyMissing => "model_key_missing", Platform, false, "the operator has no API key for the model provider";
    ModelUnreachable => "model_unreachable", Platform, true, "the model provider is unreachable";
    EgressRefused => "egress_refused", Capsule, false, "the capsule may not connect to this host";
    EgressUnreachable => "egress_unreachable", Platform, true, "an external host is unreachable";
    TooManyQueues => "too_many_queues", Caller, true, "runs have too many different sets of requirements";
    LogFull => "log_full", Platform, true, "the event log is nearly full; gateways reject new root runs";
    DiskFull => "disk_full", Platform, true, "a disk or the artifact store is nearly full; no new root runs start";
    StoreUnavailable => "store_unavailable", Platform, true, "the artifact store does not respond";
    BrokerUnavailable => "broker_unavailable", Platform, true, "the broker does not respond";
    Internal => "internal", Platform, false, "a bug in AOD";
}

impl ErrorCode {
    /// The code with this text.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// What to do first about the error: the first sentence of that section of the page.
    pub fn remedy(self) -> String {
        let lines = self.page().lines();
        let section = lines.skip_while(|line| *line != "## What to do").skip(1);
        let mut items = section.skip_while(|line| line.is_empty());
        let first = items.next().unwrap_or_default().trim_start_matches("- ");
        let rest = items.take_while(|line| line.starts_with("  "));
        let lines: Vec<&str> = std::iter::once(first).chain(rest.map(str::trim)).collect();
        let item = lines.join(" ");
        let end = item.find(". ").map_or(item.len(), |end| end + 1);
        item[..end].to_owned()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
