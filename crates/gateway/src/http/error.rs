//! Every failure of a request as one type, answered as problem+json.

use aod_api::PROBLEM_MEDIA_TYPE;
use aod_api::problem::{Problem, ProblemItem};
use aod_domain::access::{self, Refusal};
use aod_domain::error_code::ErrorCode;
use aod_domain::run::Rejection;
use aod_ports::BoxError;
use aod_ports::artifact_store::StoreError;
use aod_ports::event_log::{AppendError, ReadError};
use aod_ports::log_stream::LogStreamError;
use aod_ports::presence::PresenceError;
use aod_ports::runs::HandleError;
use aod_ports::work_queue::QueueError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// When to ask again after a refusal that may pass, in seconds: about as long as a broker takes
/// to be restarted.
const RETRY_AFTER_SECONDS: u16 = 2;

/// Why a request is refused.
#[derive(Debug)]
pub(crate) struct ApiError {
    problem: Box<Problem>,
    is_retryable: bool,
    /// For the log of the gateway, never for the caller.
    cause: Option<BoxError>,
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            problem: Box::new(Problem::new(code, detail)),
            is_retryable: code.is_retryable(),
            cause: None,
        }
    }

    /// Something of the request itself cannot be read.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::RequestMalformed, detail)
    }

    pub(crate) fn with_errors(mut self, errors: Vec<ProblemItem>) -> Self {
        *self.problem = self.problem.with_errors(errors);
        self
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.problem.status = status.as_u16();
        self
    }

    pub(crate) fn because(mut self, cause: impl Into<BoxError>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    pub(crate) fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl IntoResponse for ApiError {
    /// Without a body: the outermost layer writes it, since it knows which request it is.
    fn into_response(self) -> Response {
        if let Some(cause) = &self.cause {
            tracing::warn!(
                code = self.problem.code,
                cause = chain(cause.as_ref()),
                "request failed"
            );
        }
        let status =
            StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(PROBLEM_MEDIA_TYPE),
        );
        if self.is_retryable
            && (status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS)
        {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(*self.problem);
        response
    }
}

/// An error with everything that led to it, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::new(ErrorCode::NotPermitted, refusal.to_string())
    }
}

impl From<access::Rejection> for ApiError {
    fn from(rejection: access::Rejection) -> Self {
        let code = match rejection {
            access::Rejection::NameTaken(_) => ErrorCode::TokenExists,
            access::Rejection::TooMany => ErrorCode::RequestMalformed,
            access::Rejection::OutOfScope => ErrorCode::NotPermitted,
            access::Rejection::Unknown(_) => ErrorCode::UnknownToken,
        };
        Self::new(code, rejection.to_string())
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        Self::new(
            ErrorCode::BrokerUnavailable,
            "the event log does not answer",
        )
        .because(error)
    }
}

impl From<AppendError> for ApiError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Full => Self::new(ErrorCode::LogFull, "the event log takes no more"),
            AppendError::Conflict { .. } => Self::new(
                ErrorCode::BrokerUnavailable,
                "others changed the same thing meanwhile",
            )
            .because(error),
            AppendError::Unconfirmed { .. } => Self::new(
                ErrorCode::BrokerUnavailable,
                "the event log did not confirm",
            )
            .because(error),
        }
    }
}

impl From<HandleError> for ApiError {
    fn from(error: HandleError) -> Self {
        match error {
            HandleError::Rejected { id, rejection } => {
                Self::new(code_of(rejection), format!("{id}: {rejection}"))
            }
            HandleError::Read { source, .. } => source.into(),
            HandleError::Append { source, .. } => source.into(),
            HandleError::Contended { .. } => {
                Self::new(ErrorCode::BrokerUnavailable, "others keep changing the run")
                    .because(error)
            }
            HandleError::Damaged { id, .. } => Self::new(
                ErrorCode::Internal,
                format!("the events of {id} are damaged"),
            )
            .because(error),
        }
    }
}

fn code_of(rejection: Rejection) -> ErrorCode {
    match rejection {
        Rejection::Unknown => ErrorCode::UnknownRun,
        Rejection::KeyReused => ErrorCode::KeyReused,
        Rejection::Superseded
        | Rejection::Ended
        | Rejection::Held
        | Rejection::NoRetry
        | Rejection::NotAdmitted
        | Rejection::NotSealable => ErrorCode::RunEnded,
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Missing { digest } => Self::new(
                ErrorCode::UnknownFile,
                format!("the artifact store has no {digest}"),
            ),
            StoreError::OutOfRange { .. } => Self::malformed("the range lies outside the file")
                .with_status(StatusCode::RANGE_NOT_SATISFIABLE),
            StoreError::Source { source } => match source.downcast_ref::<super::body::TooLarge>() {
                Some(too_large) => Self::new(ErrorCode::PayloadTooLarge, too_large.to_string()),
                None => Self::malformed("the body broke off").because(error),
            },
            StoreError::Corrupt { digest, .. } => Self::new(
                ErrorCode::StoreUnavailable,
                format!("the artifact {digest} is damaged"),
            )
            .because(error),
            StoreError::NoRoom { .. }
            | StoreError::Refused { .. }
            | StoreError::Unavailable { .. } => Self::new(
                ErrorCode::StoreUnavailable,
                "the artifact store does not do it",
            )
            .because(error),
        }
    }
}

impl From<QueueError> for ApiError {
    fn from(error: QueueError) -> Self {
        Self::new(
            ErrorCode::BrokerUnavailable,
            "the work queue does not answer",
        )
        .because(error)
    }
}

impl From<PresenceError> for ApiError {
    fn from(error: PresenceError) -> Self {
        Self::new(ErrorCode::BrokerUnavailable, "presence cannot be asked").because(error)
    }
}

impl From<LogStreamError> for ApiError {
    fn from(error: LogStreamError) -> Self {
        Self::new(
            ErrorCode::BrokerUnavailable,
            "the stream of logs does not answer",
        )
        .because(error)
    }
}
