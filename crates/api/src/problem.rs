//! Every refusal: problem+json (RFC 9457), with our code and all that is wrong at once.

use aod_domain::contract;
use aod_domain::error_code::ErrorCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The page about the code, `/docs/errors/<code>`, relative to the gateway.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the code means.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What was found in this request.
    pub detail: String,
    /// The path of the request.
    pub instance: String,
    /// The error code, in snake_case.
    pub code: String,
    /// The id of the request.
    pub request_id: String,
    /// All that is wrong, with its place; empty when there is no place to name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ProblemItem>,
    /// Always false: callers of the original's routes look at nothing else.
    #[serde(default)]
    pub success: bool,
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemItem {
    /// JSON pointer into the body; empty for the whole.
    pub pointer: String,
    /// What was found and what was expected.
    pub message: String,
}

impl ProblemItem {
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            message: message.into(),
        }
    }

    /// `problem` of a payload that stands at `prefix` of the body.
    pub fn within(prefix: &str, problem: &contract::Problem) -> Self {
        Self::new(
            format!("{prefix}{}", problem.pointer),
            problem.message.clone(),
        )
    }
}

impl Problem {
    /// A problem that does not yet know of which request it tells.
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

    /// With the first [`contract::PROBLEMS_MAX`] of `errors`: a body of a megabyte may have some
    /// hundred thousand.
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

/// What a refusal calls the request: the path that was asked for, or all of a target that has none, as
/// `GET name HTTP/1.1` has.
pub fn instance(path: &str, target: &dyn std::fmt::Display) -> String {
    match path {
        "" => target.to_string(),
        path => path.to_owned(),
    }
}

/// The HTTP status with which a request is refused for `code`. A code of a failed run has none
/// and counts as a bug of ours.
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
        ErrorCode::ArtifactCollected => 410,
        ErrorCode::PayloadTooLarge => 413,
        ErrorCode::ArgumentsInvalid
        | ErrorCode::FileRefused
        | ErrorCode::CapsuleInvalid
        | ErrorCode::BuildFailed => 422,
        ErrorCode::TooManyCalls | ErrorCode::BudgetExhausted => 429,
        ErrorCode::ModelUnreachable | ErrorCode::EgressUnreachable => 502,
        ErrorCode::LogFull
        | ErrorCode::DiskFull
        | ErrorCode::StoreUnavailable
        | ErrorCode::BrokerUnavailable
        | ErrorCode::ModelKeyMissing => 503,
        _ => 500,
    }
}
