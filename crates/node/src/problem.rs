//! Refusals of a run's channel as HTTP responses, the same for calls, models and egress.

use aod_api::problem::Problem;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A refusal that a handler returns.
pub(crate) struct Refusal(Box<Problem>);

impl<P: Into<Box<Problem>>> From<P> for Refusal {
    fn from(problem: P) -> Self {
        Self(problem.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        response(&self.0)
    }
}

/// Members that [`completed`] adds to a problem, or puts in the place of its own.
#[derive(Clone)]
pub(crate) struct Members(pub(crate) Map<String, Value>);

/// A refusal as problem+json; [`completed`] adds the body.
pub(crate) fn response(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = status.into_response();
    response.extensions_mut().insert(problem.clone());
    let headers = response.headers_mut();
    let media_type = HeaderValue::from_static(aod_api::PROBLEM_MEDIA_TYPE);
    headers.insert(header::CONTENT_TYPE, media_type);
    if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, 1.into());
    }
    response
}

/// Adds the body to a response of [`response`]; any other response stays as it is.
pub(crate) fn completed(mut response: Response, instance: String) -> Response {
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.instance = instance;
        if problem.request_id.is_empty() {
            problem.request_id = format!("request_{}", Uuid::now_v7().simple());
        }
        let mut body = serde_json::to_value(&problem).expect("a problem is plain data");
        if let (Some(Members(members)), Some(body)) =
            (response.extensions_mut().remove(), body.as_object_mut())
        {
            body.extend(members);
        }
        *response.body_mut() = Body::from(body.to_string());
    }
    response
}

#[cfg(test)]
mod tests {
    use aod_domain::error_code::ErrorCode;

    use super::*;

    #[tokio::test]
    async fn members_are_beside_those_of_the_problem() {
        let mut refused = response(&Problem::new(ErrorCode::ModelKeyMissing, "no key"));
        let error = serde_json::json!({"message": "no key"});
        let members = Map::from_iter([("error".to_owned(), error.clone())]);
        refused.extensions_mut().insert(Members(members));
        let body = completed(refused, "/llm/openai/v1/responses".into()).into_body();
        let body = axum::body::to_bytes(body, 4_096).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&body["error"], &body["code"]),
            (&error, &"model_key_missing".into())
        );
    }
}
