//! The private channel of a run: HTTP on a Unix socket that only its container has.
//!
//! The socket says who speaks; nothing in a request does. Served here are calls to other capsules
//! and what one needs to make them. People's API is elsewhere and cannot be reached from a capsule.

mod answer;
pub(crate) mod request;

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aod_api::problem::Problem;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_ports::program::spawn;
use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, FromRef, Path as UrlPath, Query, State};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::future::Either;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use uuid::Uuid;

use self::answer::{Style, Waiter, respond};
use self::request::{PollParameters, parse_execute, parse_handoff};
use crate::calls::Calls;
use crate::egress::{self, Egress, Slot};
use crate::models::{self, ModelAccess};

/// Connections at one time. Source: the settled points of the design.
const CONNECTIONS_MAX: usize = 64;

/// Bytes of headers. Source: the settled points of the design.
const HEADERS_BYTES_MAX: usize = 32 * 1024;

/// How long a client may take to send its headers. Source: the settled points of the design.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a body: the largest payload, every character of it escaped, and room for the rest.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Bytes of the words with which a request is refused that no route has read.
const REJECTION_BYTES_MAX: usize = 4 * 1024;

/// What a run has on its channel.
#[derive(Clone)]
pub(crate) struct Channel {
    pub(crate) calls: Arc<Calls>,
    pub(crate) models: Arc<ModelAccess>,
    pub(crate) egress: Arc<Egress>,
}

impl FromRef<Channel> for Arc<Calls> {
    fn from_ref(channel: &Channel) -> Self {
        Arc::clone(&channel.calls)
    }
}

impl FromRef<Channel> for Arc<ModelAccess> {
    fn from_ref(channel: &Channel) -> Self {
        Arc::clone(&channel.models)
    }
}

/// Serves `channel` to whoever connects until `stop`.
pub(crate) fn serve(
    listener: std::os::unix::net::UnixListener,
    channel: Channel,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    // Most capsules call nobody: made when the first connects.
    let state = channel.clone();
    let router = LazyLock::new(move || ROUTES.clone().with_state(state));
    spawn(stop.clone().run_until_cancelled_owned(async move {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (router, stop) = (Router::clone(&router), stop.clone());
                    let channel = channel.clone();
                    spawn(async move {
                        let slot = Slot::default();
                        let served = connection(stream, router, channel, slot.clone());
                        stop.run_until_cancelled(served).await;
                        // It is told of to its end, also when the run ends.
                        slot.carry().await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    debug!(%error, "a connection of a capsule was not accepted");
                    // Descriptors have run out: others must end first.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }));
    Ok(())
}

/// Serves one client until it has ended, or says what is not understood.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    channel: Channel,
    slot: Slot,
) {
    let Channel { calls, egress, .. } = channel;
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let serving = calls.serve();
        let answer = match egress::target(&request) {
            None => Either::Left(router.call(request)),
            Some(target) => {
                let egress = Arc::clone(&egress);
                Either::Right(egress::answer(egress, target, request, slot.clone()))
            }
        };
        async move {
            let answer = answer.await;
            drop(serving);
            answer
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT)
        .max_buf_size(HEADERS_BYTES_MAX)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        debug!(%error, "a connection of a capsule broke");
    }
}

/// As [`serve`] does for one client, whatever it is connected by.
#[cfg(feature = "fuzzing")]
pub(crate) async fn serve_one(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    channel: Channel,
) {
    let router = ROUTES.clone().with_state(channel.clone());
    let slot = Slot::default();
    connection(stream, router, channel, slot.clone()).await;
    slot.carry().await;
}

/// Made once: finding the places of routes takes longer than serving one.
static ROUTES: LazyLock<Router<Channel>> = LazyLock::new(routes);

fn routes() -> Router<Channel> {
    Router::new()
        .route("/handoff", post(handoff))
        .route("/execute", post(execute))
        .route("/handoffs/{run}", get(poll))
        .route("/handoffs/{run}/cancel", post(cancel))
        .route("/capsules", get(capsules))
        .route("/capsules/{name}/schema", get(schema))
        .route("/llm/{provider}/{*path}", post(models::forward))
        .route(
            "/health",
            get(async || Json(json!({"status": "healthy", "service": "aod"}))),
        )
        .fallback(unknown_route)
        .method_not_allowed_fallback(async || {
            problem(
                &Problem::new(ErrorCode::UnknownRoute, "this address takes another method")
                    .with_status(405),
            )
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(complete_problem))
}

type Shared = State<Arc<Calls>>;

async fn handoff(State(calls): Shared, headers: HeaderMap, body: request::Body) -> Response {
    let (wish, style) = match parse_handoff(body, &headers) {
        Ok(parsed) => parsed,
        Err(refusal) => return problem(&refusal),
    };
    make(&calls, wish, &headers, style).await
}

async fn execute(State(calls): Shared, headers: HeaderMap, body: request::Body) -> Response {
    match parse_execute(body, &headers) {
        Ok(wish) => make(&calls, wish, &headers, Style::Original).await,
        Err(refusal) => problem(&refusal),
    }
}

async fn make(
    calls: &Arc<Calls>,
    wish: crate::calls::Wish,
    headers: &HeaderMap,
    style: Style,
) -> Response {
    match calls.call(wish).await {
        Ok(call) => {
            respond(
                Waiter::new(calls.wait_for(&call), call.progress()),
                headers,
                style,
            )
            .await
        }
        Err(refusal) => answer::refusal(&refusal, style),
    }
}

/// The answer of a call that was started with `Prefer: respond-async`, once it is there.
async fn poll(
    State(calls): Shared,
    UrlPath(run): UrlPath<String>,
    Query(parameters): Query<PollParameters>,
) -> Response {
    let Some(call) = run.parse::<RunId>().ok().and_then(|run| calls.find(run)) else {
        return not_its_own(&calls, &format!("/handoffs/{run}"), &run).await;
    };
    let waiter = Waiter::new(calls.wait_for(&call), call.progress());
    answer::poll(waiter, parameters.wait()).await
}

/// The refusal of a run that another has called, or nobody.
async fn not_its_own(calls: &Calls, path: &str, run: &str) -> Response {
    let text = format!("{run} was not called by this run");
    let refusal = Problem::new(ErrorCode::UnknownRun, text);
    calls.refused(path, &refusal).await;
    problem(&refusal)
}

async fn cancel(State(calls): Shared, UrlPath(run): UrlPath<String>) -> Response {
    let Some(run) = run
        .parse::<RunId>()
        .ok()
        .filter(|run| calls.find(*run).is_some())
    else {
        return not_its_own(&calls, &format!("/handoffs/{run}/cancel"), &run).await;
    };
    match calls
        .gateways
        .cancel(&calls.speaker, run, "cancelled by its caller")
        .await
    {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(refusal) => problem(&refusal),
    }
}

async fn capsules(State(calls): Shared) -> Response {
    match calls.gateways.targets(&calls.speaker).await {
        Ok(targets) => {
            let capsules: serde_json::Map<_, _> = targets
                .targets
                .into_iter()
                .map(|target| {
                    let entry = json!({"path": format!("aod:file/{}", target.content), "image": target.image,
                        "title": target.title, "aliases": target.aliases, "description": target.description});
                    (target.name.to_string(), entry)
                })
                .collect();
            Json(json!({"capsules": capsules})).into_response()
        }
        Err(refusal) => problem(&refusal),
    }
}

async fn schema(State(calls): Shared, UrlPath(name): UrlPath<String>) -> Response {
    match calls.gateways.targets(&calls.speaker).await {
        Ok(targets) => match targets
            .targets
            .into_iter()
            .find(|target| target.name.as_str() == name)
        {
            Some(target) => Json(target.schema).into_response(),
            None => problem(&Problem::new(
                ErrorCode::UnknownCapsule,
                format!("this run may not call {name:?}"),
            )),
        },
        Err(refusal) => problem(&refusal),
    }
}

async fn unknown_route(State(calls): Shared, request: Request<Body>) -> Response {
    let asked = format!("{} {}", request.method(), request.uri().path());
    let text = format!("a capsule's channel has no {asked}");
    let refusal = Problem::new(ErrorCode::UnknownRoute, text);
    calls.refused(&asked, &refusal).await;
    problem(&refusal)
}

/// A refusal as problem+json; [`complete_problem`] writes its body.
pub(crate) fn problem(problem: &Problem) -> Response {
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

/// What is refused before it comes to one of our routes (a path that is not UTF-8, a query that is not
/// the route's) as all refusals are.
async fn rejected(response: Response) -> Response {
    let (head, body) = response.into_parts();
    let text = axum::body::to_bytes(body, REJECTION_BYTES_MAX).await;
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let malformed = Problem::new(ErrorCode::RequestMalformed, text);
    problem(&malformed.with_status(head.status.as_u16()))
}

/// Names the request in a refusal: its path here, whoever has refused it.
async fn complete_problem(request: Request<Body>, next: Next) -> Response {
    let instance = aod_api::problem::instance(request.uri().path(), request.uri());
    let mut response = next.run(request).await;
    let is_ours = !response.headers().contains_key(models::SOURCE_HEADER);
    let is_read = response.extensions().get::<Problem>().is_some();
    if response.status().is_client_error() && is_ours && !is_read {
        response = rejected(response).await;
    }
    completed(response, instance)
}

/// The answer to a request that is refused outside of all routes.
pub(crate) fn refused(refusal: &Problem, instance: String) -> Response {
    completed(problem(refusal), instance)
}

fn completed(mut response: Response, instance: String) -> Response {
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.instance = instance;
        if problem.request_id.is_empty() {
            problem.request_id = format!("request_{}", Uuid::now_v7().simple());
        }
        let bytes = serde_json::to_vec(&problem).expect("a problem is plain data");
        *response.body_mut() = Body::from(bytes);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_no_route_has_read_is_refused_as_a_problem() {
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
