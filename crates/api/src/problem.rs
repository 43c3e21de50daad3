//! Error answers: problem+json (RFC 9457) with an error code and the list of all problems.

use aod_domain::contract;
use aod_domain::error_code::ErrorCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why the gateway or node rejected a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Page about the code, `/docs/errors/<code>`, relative to the gateway.
    #[serde(rename = "type")]
    pub kind: String,
    /// Meaning of the code.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What is wrong with this request.
    pub detail: String,
    /// Path of the request.
    pub instance: String,
    /// Error code, in snake_case.
    pub code: String,
    /// Id of the request.
    pub request_id: String,
    /// All problems with their places in the body; empty if they have no place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ProblemItem>,
    /// Always false, for clients of the agent-on-demand compatibility routes.
    #[serde(default)]
    pub success: bool,
}

/// A problem and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemItem {
    /// JSON pointer into the body; empty for the whole body.
    pub pointer: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl ProblemItem {
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            message: message.into(),
        }
    }

    /// `problem` in a payload that is at `prefix` of the body.
    pub fn within(prefix: &str, problem: &contract::Problem) -> Self {
        Self::new(
            format!("{prefix}{}", problem.pointer),
            problem.message.clone(),
        )
    }
}

impl Problem {
    /// A problem without `instance` and `request_id`.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/docs/errors/{code}"),
            title: code.title().to_owned(),
            status: status_of(code),
            detail: detail.into(),
            instance: String::new(),
            code: code.as_str().to_owned(),
            request_id: String::new(),
            errors: Vec::new(),
            success: false,
        }
    }

    /// Keeps the first [`contract::PROBLEMS_MAX`] of `errors`: a body of a megabyte can cause hundreds of thousands.
    #[must_use]
    pub fn with_errors(mut self, mut errors: Vec<ProblemItem>) -> Self {
        errors.truncate(contract::PROBLEMS_MAX);
        self.errors = errors;
        self
    }

    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

/// The `instance` of a problem: the path of the request, or the whole target if it has no path (`GET name HTTP/1.1`).
pub fn instance(path: &str, target: &dyn std::fmt::Display) -> String {
    match path {
        "" => target.to_string(),
        path => path.to_owned(),
    }
}

/// HTTP status of a problem with `code`. Codes that only failed runs have are a bug here: 500.
pub const fn status_of(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::RequestMalformed => 400,
        ErrorCode::Unauthorized => 401,
        ErrorCode::NotPermitted
        | ErrorCode::TargetNotAllowed
        | ErrorCode::CallsExhausted
        | ErrorCode::ModelNotAllowed
        | ErrorCode::ModelUnpriced
        | ErrorCode::EgressRefused => 403,
        ErrorCode::UnknownCapsule
        | ErrorCode::UnknownRun
        | ErrorCode::UnknownDeadLetter
        | ErrorCode::UnknownNode
        | ErrorCode::UnknownRule
        | ErrorCode::UnknownToken
        | ErrorCode::UnknownFile
        | ErrorCode::UnknownPolicy
        | ErrorCode::UnknownHold
        | ErrorCode::UnknownProvider
        | ErrorCode::UnknownRoute => 404,
        ErrorCode::TokenExists
        | ErrorCode::KeyReused
        | ErrorCode::RunEnded
        | ErrorCode::RunNotEnded
        | ErrorCode::Cancelled
        | ErrorCode::CallCycle
        | ErrorCode::CallTooDeep
        | ErrorCode::NameAmbiguous => 409,
        ErrorCode::ArtifactDeleted => 410,
        ErrorCode::PayloadTooLarge => 413,
        ErrorCode::ArgumentsInvalid
        | ErrorCode::FileRefused
        | ErrorCode::CapsuleInvalid
        | ErrorCode::BuildFailed => 422,
        ErrorCode::TooManyCalls | ErrorCode::TooManyQueues | ErrorCode::BudgetExhausted => 429,
        ErrorCode::ModelUnreachable | ErrorCode::EgressUnreachable => 502,
        ErrorCode::LogFull
        | ErrorCode::DiskFull
        | ErrorCode::StoreUnavailable
        | ErrorCode::BrokerUnavailable
        | ErrorCode::ModelKeyMissing => 503,
        _ => 500,
    }
}
