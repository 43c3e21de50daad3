//! The routes of a run's channel.

use std::sync::{Arc, LazyLock};

use aod_api::problem::Problem;
use aod_api::strict::JSON_BYTES_MAX;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use axum::body::Body;
use axum::extract::{FromRef, Path as UrlPath, Query, State};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;

use super::answer::{self, Style, Waiter, respond};
use super::request::{self, PollParameters, parse_execute, parse_handoff};
use crate::calls::{CallState, Calls, Wish};
use crate::egress::Egress;
use crate::models::access::ModelAccess;
use crate::models::call::forward;
use crate::models::wire::SOURCE_HEADER;
use crate::problem::{self, Refusal};

/// Bytes of axum's message about a request that no handler has read.
const REJECTION_BYTES_MAX: usize = 4 * 1024;

/// The services of a run's channel.
#[derive(Clone, FromRef)]
pub(crate) struct Channel {
    pub(crate) calls: Arc<Calls>,
    pub(crate) models: Arc<ModelAccess>,
    pub(crate) egress: Arc<Egress>,
}

/// Built once: building the routes takes longer than serving a request.
pub(super) static ROUTES: LazyLock<Router<Channel>> = LazyLock::new(routes);

fn routes() -> Router<Channel> {
    Router::new()
        .route("/handoff", post(handoff))
        .route("/execute", post(execute))
        .route("/handoffs/{run}", get(poll))
        .route("/handoffs/{run}/cancel", post(cancel))
        .route("/capsules", get(capsules))
        .route("/capsules/{name}/schema", get(schema))
        .route("/llm/{provider}/{*path}", post(forward))
        .route(
            "/health",
            get(async || Json(json!({"status": "healthy", "service": "aod"}))),
        )
        .fallback(unknown_route)
        .method_not_allowed_fallback(async || {
            let text = "this path does not allow the method";
            problem::response(&Problem::new(ErrorCode::UnknownRoute, text).with_status(405))
        })
        .layer(from_fn(complete_problem))
}

/// The answer of a handler.
type Answered = Result<Response, Refusal>;

type Served = State<Arc<Calls>>;

async fn handoff(State(channel): State<Channel>, headers: HeaderMap, body: Body) -> Answered {
    let (wish, style) = {
        let (body, _memory) = channel
            .models
            .read_body(body, &headers, JSON_BYTES_MAX)
            .await?;
        parse_handoff(&body, &headers)?
    };
    Ok(make(&channel.calls, wish, &headers, style).await)
}

async fn execute(State(channel): State<Channel>, headers: HeaderMap, body: Body) -> Answered {
    let wish = {
        let (body, _memory) = channel
            .models
            .read_body(body, &headers, JSON_BYTES_MAX)
            .await?;
        parse_execute(&body, &headers)?
    };
    Ok(make(&channel.calls, wish, &headers, Style::Compatibility).await)
}

async fn make(calls: &Arc<Calls>, wish: Wish, headers: &HeaderMap, style: Style) -> Response {
    if let Err(refusal) = request::check_paths(&wish, style) {
        calls.refused(&wish.target, &refusal).await;
        return answer::refusal(&refusal, style);
    }
    match calls.call(wish).await {
        Ok(call) => respond(waiter(calls, &call), headers, style).await,
        Err(refusal) => answer::refusal(&refusal, style),
    }
}

fn waiter(calls: &Calls, call: &Arc<CallState>) -> Waiter {
    Waiter::new(calls.activity.wait_for(call), call.progress())
}

/// Answers a poll for a call that was started with `Prefer: respond-async`.
async fn poll(
    State(calls): Served,
    UrlPath(run): UrlPath<String>,
    Query(parameters): Query<PollParameters>,
) -> Answered {
    let (_, call) = callee(&calls, &run, "").await?;
    Ok(answer::poll(waiter(&calls, &call), parameters.wait()).await)
}

async fn cancel(State(calls): Served, UrlPath(run): UrlPath<String>) -> Answered {
    let (run, _) = callee(&calls, &run, "/cancel").await?;
    calls.speaker.cancel(run, "cancelled by its caller").await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// The callee `run` of this run; a request to any other run is refused. `rest` is the end of the path.
async fn callee(calls: &Calls, run: &str, rest: &str) -> Result<(RunId, Arc<CallState>), Refusal> {
    if let Ok(id) = run.parse()
        && let Some(call) = calls.find(id)
    {
        return Ok((id, call));
    }
    let text = format!("{run} is not a callee of this run");
    let refusal = Problem::new(ErrorCode::UnknownRun, text);
    calls
        .refused(&format!("/handoffs/{run}{rest}"), &refusal)
        .await;
    Err(refusal.into())
}

async fn capsules(State(calls): Served) -> Answered {
    let targets = calls.speaker.targets().await?.targets.into_iter();
    let capsules: serde_json::Map<_, _> = targets
        .map(|target| {
            let entry = json!({"path": format!("aod:file/{}", target.content), "image": target.image,
                "title": target.title, "aliases": target.aliases, "description": target.description});
            (target.name.to_string(), entry)
        })
        .collect();
    Ok(Json(json!({"capsules": capsules})).into_response())
}

async fn schema(State(calls): Served, UrlPath(name): UrlPath<String>) -> Answered {
    let mut targets = calls.speaker.targets().await?.targets.into_iter();
    match targets.find(|target| target.name.as_str() == name) {
        Some(target) => Ok(Json(target.schema).into_response()),
        None => {
            let text = format!("this run may not call {name:?}");
            Err(Problem::new(ErrorCode::UnknownCapsule, text).into())
        }
    }
}

async fn unknown_route(State(calls): Served, request: Request<Body>) -> Answered {
    let asked = format!("{} {}", request.method(), request.uri().path());
    let text = format!("the channel of a capsule has no route {asked}");
    let refusal = Problem::new(ErrorCode::UnknownRoute, text);
    calls.refused(&asked, &refusal).await;
    Err(refusal.into())
}

/// Turns axum's own refusal (of a path that is not UTF-8, of an invalid query) into a problem.
async fn rejected(response: Response) -> Response {
    let (head, body) = response.into_parts();
    let text = axum::body::to_bytes(body, REJECTION_BYTES_MAX).await;
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let malformed = Problem::new(ErrorCode::RequestMalformed, text);
    problem::response(&malformed.with_status(head.status.as_u16()))
}

/// Sets the instance of each problem to the path of the request on the channel.
async fn complete_problem(request: Request<Body>, next: Next) -> Response {
    let instance = aod_api::problem::instance(request.uri().path(), request.uri());
    let mut response = next.run(request).await;
    let is_ours = !response.headers().contains_key(SOURCE_HEADER);
    let is_read = response.extensions().get::<Problem>().is_some();
    if response.status().is_client_error() && is_ours && !is_read {
        response = rejected(response).await;
    }
    problem::completed(response, instance)
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;

    #[tokio::test]
    async fn rejection_by_axum_becomes_a_problem() {
        let rejection = (StatusCode::BAD_REQUEST, "wait: not a number").into_response();
        let response = rejected(rejection).await;
        let problem = response.extensions().get::<Problem>().expect("a problem");
        assert_eq!(
            (
                problem.code.as_str(),
                problem.status,
                problem.detail.as_str()
            ),
            ("request_malformed", 400, "wait: not a number")
        );
        let media_type = response.headers().get(header::CONTENT_TYPE);
        assert_eq!(media_type.unwrap(), aod_api::PROBLEM_MEDIA_TYPE);
    }
}
