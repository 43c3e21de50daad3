//! Answers for clients that ask for something impossible.

use std::sync::{Arc, Mutex, PoisonError};

use aod_ports::artifact_store::StoreError;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, StatusCode};
use serde_json::json;

use crate::transfer::Session;

/// An error of the API. Source of the codes: OCI distribution specification 1.1, "Error Codes".
#[derive(Debug)]
pub(crate) struct Error {
    status: StatusCode,
    code: &'static str,
    message: String,
    failure: Option<Failure>,
}

/// A failure of the artifact store, on its way from a handler to its transfer.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Arc<Mutex<Option<StoreError>>>);

impl Failure {
    pub(crate) fn report(self, session: &Session) {
        let error = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = error {
            session.fail(error);
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            failure: None,
        }
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "only this host's AOD node may use this registry, during a transfer";
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message)
    }

    pub(crate) fn denied(message: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "DENIED", message)
    }

    pub(crate) fn unknown_blob(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "BLOB_UNKNOWN", message)
    }

    pub(crate) fn unknown_upload() -> Self {
        let message = "no such upload: it has ended, failed, or belongs to another transfer";
        Self::new(StatusCode::NOT_FOUND, "BLOB_UPLOAD_UNKNOWN", message)
    }

    pub(crate) fn broken_upload(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BLOB_UPLOAD_INVALID", message)
    }

    pub(crate) fn wrong_digest(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "DIGEST_INVALID", message)
    }

    pub(crate) fn wrong_manifest(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "MANIFEST_INVALID", message)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let message = chain(&error);
        let answer = match error {
            StoreError::Missing { .. } => Self::unknown_blob(message),
            // Docker tries again after 5xx, up to five times, with a pause: useless for these.
            StoreError::NoRoom { .. } | StoreError::Refused { .. } | StoreError::Corrupt { .. } => {
                Self::denied(&message)
            }
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", message),
        };
        Self {
            failure: Some(Failure(Arc::new(Mutex::new(Some(error))))),
            ..answer
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let body = json!({"errors": [{"code": self.code, "message": self.message}]});
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let name = HeaderName::from_static("www-authenticate");
            let challenge = http::HeaderValue::from_static("Basic realm=\"aod\"");
            response.headers_mut().insert(name, challenge);
        }
        if let Some(failure) = self.failure {
            response.extensions_mut().insert(failure);
        }
        response
    }
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

pub(crate) async fn unknown_route() -> Error {
    let message = "this registry serves one repository, \"aod\", and no lists";
    Error::new(StatusCode::NOT_FOUND, "NAME_UNKNOWN", message)
}
