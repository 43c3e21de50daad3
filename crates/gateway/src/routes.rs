//! What is served where.

mod audit;
mod capsules;
mod dead_letters;
mod description;
mod events;
mod files;
mod history;
pub(crate) mod internal;
mod log;
mod logs;
mod nodes;
mod operations;
pub(crate) mod original;
mod reruns;
mod results;
mod retention;
mod rules;
pub(crate) mod runs;
mod sse;
mod tokens;
pub(crate) mod upload;

pub(crate) use self::description::description;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post, put};

use aod_domain::error_code::ErrorCode;

use crate::context::Shared;
use crate::http::error::ApiError;
use crate::http::{access, request};

/// All routes of a gateway.
pub(crate) fn router(context: Shared) -> Router {
    let people = people().route_layer(from_fn_with_state(context.clone(), access::layer));
    people
        .merge(internal())
        .merge(open())
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        // Every route bounds its body itself, files by another measure than JSON.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(context.clone(), request::layer))
        .with_state(context)
}

/// For whoever has a token.
fn people() -> Router<Shared> {
    Router::new()
        .route("/v1/runs", post(runs::create).get(runs::list))
        .route("/v1/runs/{run}", get(runs::show))
        .route("/v1/runs/{run}/result", get(results::result))
        .route("/v1/runs/{run}/cancel", post(runs::cancel))
        .route("/v1/runs/{run}/rerun", post(reruns::create))
        .route("/v1/runs/{run}/tree", get(runs::tree))
        .route("/v1/runs/{run}/at/{event}", get(history::at))
        .route("/v1/runs/{run}/replay", get(history::replay))
        .route("/v1/runs/{run}/diff/{other}", get(history::difference))
        .route("/v1/runs/{run}/files/{*name}", get(results::output_file))
        .route("/v1/runs/{run}/inputs/{*name}", get(results::input_file))
        .route("/v1/runs/{run}/events", get(events::events))
        .route("/v1/runs/{run}/logs", get(logs::logs))
        .route("/v1/events", get(log::select))
        .route("/v1/runs/{run}/bundle", get(audit::bundle))
        .route("/v1/seal-key", get(audit::seal_key))
        .route("/v1/files", post(files::upload))
        .route("/v1/files/{digest}", get(files::download))
        .route("/v1/capsules", post(capsules::register).get(capsules::list))
        .route("/v1/capsules/{name}", get(capsules::show))
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{token}", delete(tokens::revoke))
        .route("/v1/rules", get(rules::list))
        .route("/v1/rules/{name}", put(rules::set).delete(rules::remove))
        .route("/v1/retention", get(retention::list))
        .route(
            "/v1/retention/{name}",
            put(retention::set).delete(retention::remove),
        )
        .route("/v1/holds", get(retention::holds))
        .route(
            "/v1/holds/{run}",
            put(retention::hold).delete(retention::release),
        )
        .route("/v1/gc", post(retention::collect))
        .route("/v1/nodes", get(nodes::list))
        .route("/v1/nodes/{node}/drain", post(nodes::drain))
        .route("/v1/nodes/{node}/resume", post(nodes::resume))
        .route("/v1/deadletters", get(dead_letters::list))
        .route("/v1/deadletters/{run}", get(dead_letters::show))
        .route("/v1/deadletters/{run}/requeue", post(dead_letters::requeue))
        .route("/v1/deadletters/{run}/purge", post(dead_letters::purge))
        .route("/metrics", get(operations::metrics))
        .route("/execute", post(original::execute))
        .route("/handoff", post(original::handoff))
        .route("/capsules", get(original::capsules))
        .route("/capsules/{name}/schema", get(original::schema))
        .route("/visualizer/state", get(original::visualizer))
}

/// For nodes, with the token of a run.
fn internal() -> Router<Shared> {
    Router::new()
        .route("/internal/v1/runs/{run}/calls", post(internal::call))
        .route("/internal/v1/runs/{run}/targets", get(internal::targets))
        .route(
            "/internal/v1/runs/{run}/calls/{child}/cancel",
            post(internal::cancel),
        )
}

/// For everyone: nothing of anybody's is told here.
fn open() -> Router<Shared> {
    Router::new()
        .route("/health", get(operations::health))
        .route("/ready", get(operations::ready))
        .route("/openapi.json", get(operations::openapi))
        .route("/docs", get(operations::docs))
        .route("/docs/errors/{code}", get(operations::error_page))
}

async fn unknown_route(uri: Uri) -> ApiError {
    ApiError::new(
        ErrorCode::UnknownRoute,
        format!("nothing is served at {}", uri.path()),
    )
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::malformed(format!("{} is not for {method}", uri.path()))
        .with_status(StatusCode::METHOD_NOT_ALLOWED)
}
