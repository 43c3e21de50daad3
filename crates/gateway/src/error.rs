//! Errors of requests, grouped by what the caller does next.

use std::convert::Infallible;

use aod_api::problem::ProblemItem;
use aod_api::strict::Malformed;
use aod_domain::access::{self, Refusal, TokenNeeded};
use aod_domain::error_code::ErrorCode;
use aod_domain::{capsule, flow, handoff, launch, retention, run};
use aod_ports::BoxError;
use aod_ports::artifact_store::StoreError;
use aod_ports::event_log::{AppendError, ReadError};
use aod_ports::log_stream::LogStreamError;
use aod_ports::presence::PresenceError;
use aod_ports::work_queue::QueueError;
use aod_services::writer::{ChangeError, LoadError};
use axum::http::StatusCode;
use thiserror::Error;

/// Error of a request.
#[derive(Debug, Error)]
#[error("{}", .0.detail)]
pub(crate) enum Error {
    /// The caller changes the request.
    Refused(Box<Details>),
    /// The run has ended, or another writer acts for it: the caller has nothing left to do.
    RunEnded(Box<Details>),
    /// Garbage collection deleted an artifact that the request needs: the caller recreates it.
    ArtifactDeleted(Box<Details>),
    /// A part of the cluster is full or does not answer: the caller repeats the request later.
    Unavailable(Box<Details>),
    /// A bug, or damaged data: the operator reads the log of the gateway.
    Broken(Box<Details>),
}

/// Details for the caller and for the log of the gateway.
#[derive(Debug)]
pub(crate) struct Details {
    pub(crate) code: ErrorCode,
    pub(crate) detail: String,
    /// All problems with their places.
    pub(crate) errors: Vec<ProblemItem>,
    /// HTTP status, if it is not that of the code.
    pub(crate) status: Option<StatusCode>,
    /// For the log of the gateway, never for the caller.
    pub(crate) source: Option<BoxError>,
}

/// A body exceeds its limit.
#[derive(Debug, thiserror::Error)]
#[error("the body has more than {bytes_max} bytes, the maximum")]
pub(crate) struct TooLarge {
    pub(crate) bytes_max: u64,
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The error of `code`; the code determines the variant.
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let details = Box::new(Details {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            status: None,
            source: None,
        });
        match code {
            ErrorCode::RunEnded => Self::RunEnded(details),
            ErrorCode::ArtifactDeleted => Self::ArtifactDeleted(details),
            ErrorCode::Internal => Self::Broken(details),
            code if code.is_retryable() => Self::Unavailable(details),
            _ => Self::Refused(details),
        }
    }

    /// An error of the request itself.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::RequestMalformed, detail)
    }

    /// The error for a rejected launch; its arguments are at the pointer `prefix` of the body.
    pub(crate) fn rejected(rejection: &launch::Rejection, prefix: &str) -> Self {
        let errors = match rejection {
            launch::Rejection::Misfit { problems, .. } => problems
                .iter()
                .map(|problem| ProblemItem::within(prefix, problem))
                .collect(),
            launch::Rejection::Files(clashes) => clashes
                .iter()
                .map(|clash| ProblemItem::new("/files", clash.to_string()))
                .collect(),
            _ => Vec::new(),
        };
        Self::new(rejection.code(), rejection.to_string()).with_errors(errors)
    }

    pub(crate) fn with_errors(mut self, errors: Vec<ProblemItem>) -> Self {
        self.details_mut().errors = errors;
        self
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.details_mut().status = Some(status);
        self
    }

    pub(crate) fn because(mut self, cause: impl Into<BoxError>) -> Self {
        self.details_mut().source = Some(cause.into());
        self
    }

    pub(crate) const fn details(&self) -> &Details {
        match self {
            Self::Refused(details)
            | Self::RunEnded(details)
            | Self::ArtifactDeleted(details)
            | Self::Unavailable(details)
            | Self::Broken(details) => details,
        }
    }

    const fn details_mut(&mut self) -> &mut Details {
        match self {
            Self::Refused(details)
            | Self::RunEnded(details)
            | Self::ArtifactDeleted(details)
            | Self::Unavailable(details)
            | Self::Broken(details) => details,
        }
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Self::new(malformed.code, malformed.detail).with_errors(malformed.errors)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(ErrorCode::NotPermitted, refusal.to_string())
    }
}

impl From<TokenNeeded> for Error {
    fn from(needed: TokenNeeded) -> Self {
        let error = Self::new(ErrorCode::Unauthorized, needed.to_string());
        match needed {
            TokenNeeded::Missing => error,
            TokenNeeded::OtherHost => error.with_status(StatusCode::FORBIDDEN),
        }
    }
}

impl From<handoff::Refusal> for Error {
    fn from(refusal: handoff::Refusal) -> Self {
        Self::new(refusal.code(), refusal.to_string())
    }
}

/// A rejection of the domain, which the caller receives.
pub(crate) trait Rejected {
    /// The error; `name` is what the caller wanted to change.
    fn refused(self, name: &str) -> Error;
}

impl Rejected for run::Rejection {
    fn refused(self, name: &str) -> Error {
        let code = match self {
            Self::Unknown => ErrorCode::UnknownRun,
            Self::KeyReused => ErrorCode::KeyReused,
            Self::Superseded
            | Self::Ended
            | Self::Held
            | Self::NoRetry
            | Self::NotAdmitted
            | Self::NotNextStep
            | Self::NotSealable => ErrorCode::RunEnded,
        };
        Error::new(code, format!("{name}: {self}"))
    }
}

impl Rejected for access::Rejection {
    fn refused(self, _name: &str) -> Error {
        let code = match self {
            Self::NameTaken(_) => ErrorCode::TokenExists,
            Self::TooMany => ErrorCode::RequestMalformed,
            Self::OutOfScope => ErrorCode::NotPermitted,
            Self::Unknown(_) => ErrorCode::UnknownToken,
        };
        Error::new(code, self.to_string())
    }
}

impl Rejected for flow::Rejection {
    fn refused(self, _name: &str) -> Error {
        let code = match self {
            Self::TooMany => ErrorCode::RequestMalformed,
            Self::Unknown(_) => ErrorCode::UnknownRule,
        };
        Error::new(code, self.to_string())
    }
}

impl Rejected for retention::Rejection {
    fn refused(self, _name: &str) -> Error {
        let code = match self {
            Self::TooManyPolicies | Self::TooManyHolds => ErrorCode::RequestMalformed,
            Self::UnknownPolicy(_) => ErrorCode::UnknownPolicy,
            Self::UnknownHold(_) => ErrorCode::UnknownHold,
        };
        Error::new(code, self.to_string())
    }
}

impl Rejected for capsule::NotRegistered {
    fn refused(self, _name: &str) -> Error {
        Error::new(ErrorCode::UnknownCapsule, self.to_string())
    }
}

impl Rejected for Infallible {
    fn refused(self, _name: &str) -> Error {
        match self {}
    }
}

/// The error for a broker that does not answer, or not in time.
fn broker(detail: &str, cause: impl Into<BoxError>) -> Error {
    Error::new(ErrorCode::BrokerUnavailable, detail).because(cause)
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        broker("the event log does not respond", error)
    }
}

impl From<AppendError> for Error {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Full => Self::new(ErrorCode::LogFull, "the event log is full"),
            AppendError::Conflict { .. } => broker(
                "another program stored an event first; retry the request",
                error,
            ),
            AppendError::Unconfirmed { .. } => {
                broker("the event log did not confirm the write", error)
            }
        }
    }
}

impl<R: Rejected> From<ChangeError<R>> for Error {
    fn from(error: ChangeError<R>) -> Self {
        match error {
            ChangeError::Rejected { name, rejection } => rejection.refused(&name),
            ChangeError::Load(error) => error.into(),
            ChangeError::Append { source, .. } => source.into(),
            ChangeError::TooLarge { name, source } => {
                let detail = format!("{name}: {source}");
                Self::new(ErrorCode::PayloadTooLarge, detail)
            }
            ChangeError::Contended { name } => {
                let detail = format!("concurrent requests keep changing {name}; retry the request");
                Self::new(ErrorCode::BrokerUnavailable, detail)
            }
        }
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Read { source, .. } => source.into(),
            LoadError::Damaged { ref name, .. } => {
                let detail = format!("the events of {name} are damaged");
                Self::new(ErrorCode::Internal, detail).because(error)
            }
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let unavailable = |detail: String| Self::new(ErrorCode::StoreUnavailable, detail);
        match &error {
            StoreError::Missing { digest } => {
                let detail = format!("the artifact store has no {digest}");
                Self::new(ErrorCode::UnknownFile, detail)
            }
            StoreError::OutOfRange { .. } => Self::malformed("the range is outside the file")
                .with_status(StatusCode::RANGE_NOT_SATISFIABLE),
            StoreError::Source { source } => match source.downcast_ref::<TooLarge>() {
                Some(too_large) => Self::new(ErrorCode::PayloadTooLarge, too_large.to_string()),
                None => Self::malformed(
                    "the connection ended, or was silent for a minute, before the end of the body",
                )
                .because(error),
            },
            StoreError::Corrupt { digest, .. } => {
                unavailable(format!("the artifact {digest} is damaged")).because(error)
            }
            StoreError::NoRoom { .. }
            | StoreError::Refused { .. }
            | StoreError::Unavailable { .. } => {
                unavailable("the artifact store does not respond or is full".to_owned())
                    .because(error)
            }
        }
    }
}

impl From<QueueError> for Error {
    fn from(error: QueueError) -> Self {
        broker("the work queue does not respond", error)
    }
}

impl From<PresenceError> for Error {
    fn from(error: PresenceError) -> Self {
        broker("the list of gateways and nodes does not respond", error)
    }
}

impl From<LogStreamError> for Error {
    fn from(error: LogStreamError) -> Self {
        broker("the live log stream does not respond", error)
    }
}
