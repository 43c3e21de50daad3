//! Errors as responses: problem+json (RFC 9457).

use aod_api::PROBLEM_MEDIA_TYPE;
use aod_api::problem::Problem;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use aod_services::error::chain;

use crate::error::Error;

/// When to repeat a request that may succeed later, in seconds: about as long as a broker takes to restart.
const RETRY_AFTER_SECONDS: u16 = 2;

impl Error {
    /// What the caller gets, before it is known which request it is about.
    pub(crate) fn problem(&self) -> Problem {
        let details = self.details();
        let problem = Problem::new(details.code, &details.detail);
        let problem = problem.with_errors(details.errors.clone());
        match details.status {
            Some(status) => problem.with_status(status.as_u16()),
            None => problem,
        }
    }
}

impl IntoResponse for Error {
    /// Without a body: the outermost layer writes it, since it knows which request it is.
    fn into_response(self) -> Response {
        let problem = self.problem();
        if let Some(cause) = &self.details().source {
            tracing::warn!(
                code = problem.code,
                cause = chain(cause.as_ref()),
                "request failed"
            );
        }
        let status =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(PROBLEM_MEDIA_TYPE),
        );
        if self.details().code.is_retryable()
            && (status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS)
        {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(problem);
        response
    }
}
