//! Routes of the HTTP API.

mod audit;
mod capsules;
pub(crate) mod compatibility;
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
mod reruns;
mod results;
mod retention;
mod rules;
pub(crate) mod runs;
mod sse;
mod tokens;
pub(crate) mod upload;
mod visualizer;

pub(crate) use self::description::description;
use aod_domain::access::{Need, Reach, Role};
use aod_domain::error_code::ErrorCode;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, get, on, post};
use utoipa::OpenApi;

use crate::context::Shared;
use crate::error::Error;
use crate::http::{access, request};

/// Description of the default response of every route, for OpenAPI.
const PROBLEM: &str = "A problem: what is wrong and how to fix it";

/// All routes of a gateway.
pub(crate) fn router(context: Shared) -> Router {
    people(&context)
        .merge(internal())
        .merge(open())
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        // Every route bounds its body itself: files and JSON have different limits.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(context.clone(), request::layer))
        .with_state(context)
}

/// A route of the API that needs a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub method: &'static str,
    /// With the names of parameters in braces; `{*name}` is the rest of a path.
    pub path: &'static str,
    pub need: Need,
}

impl Route {
    /// The path as descriptions show it.
    pub fn plain_path(&self) -> String {
        self.path.replace("{*", "{")
    }
}

/// Registers each route once: method, path, role, reach and handler; routes of agent-on-demand have a mark.
macro_rules! routes {
    ($($method:ident $path:literal $role:ident $reach:ident $module:ident::$handler:ident$(, $mark:ident)?;)*) => {
        /// All routes that need a token.
        pub const ROUTES: &[Route] = &[$(Route {
            method: stringify!($method),
            path: $path,
            need: need(Role::$role, Reach::$reach)$(.$mark())?,
        },)*];

        /// The descriptions of these routes.
        #[derive(OpenApi)]
        #[openapi(paths($($module::$handler),*))]
        struct Descriptions;

        fn people(context: &Shared) -> Router<Shared> {
            Router::new()$(.route(
                $path,
                on(MethodFilter::$method, $module::$handler).route_layer(from_fn_with_state(
                    (context.clone(), need(Role::$role, Reach::$reach)$(.$mark())?),
                    access::layer,
                )),
            ))*
        }
    };
}

const fn need(role: Role, reach: Reach) -> Need {
    Need {
        role,
        reach,
        compatibility: false,
    }
}

routes! {
    POST "/v1/runs" Run Tenant runs::create;
    GET "/v1/runs" Read Tenant runs::list;
    GET "/v1/runs/{run}" Read Tenant runs::show;
    GET "/v1/runs/{run}/result" Read Tenant results::result;
    POST "/v1/runs/{run}/cancel" Run Tenant runs::cancel;
    POST "/v1/runs/{run}/rerun" Run Tenant reruns::create;
    GET "/v1/runs/{run}/tree" Read Tenant runs::tree;
    GET "/v1/runs/{run}/at/{event}" Read Tenant history::at;
    GET "/v1/runs/{run}/replay" Read Tenant history::replay;
    GET "/v1/runs/{run}/diff/{other}" Read Tenant history::difference;
    GET "/v1/runs/{run}/files/{*name}" Read Tenant results::output_file;
    GET "/v1/runs/{run}/inputs/{*name}" Read Tenant results::input_file;
    GET "/v1/runs/{run}/events" Read Tenant events::events;
    GET "/v1/runs/{run}/logs" Read Tenant logs::logs;
    GET "/v1/runs/{run}/bundle" Read Tenant audit::bundle;
    GET "/v1/events" Read Tenant log::select;
    GET "/v1/seal-key" Read Tenant audit::seal_key;
    POST "/v1/files" Run Tenant files::upload;
    GET "/v1/files/{digest}" Read Tenant files::download;
    POST "/v1/capsules" Operate Tenant capsules::register;
    GET "/v1/capsules" Read Tenant capsules::list;
    GET "/v1/capsules/{name}" Read Tenant capsules::show;
    DELETE "/v1/capsules/{name}" Operate Tenant capsules::remove;
    GET "/v1/deadletters" Read Tenant dead_letters::list;
    GET "/v1/deadletters/{run}" Read Tenant dead_letters::show;
    POST "/v1/deadletters/{run}/requeue" Operate Tenant dead_letters::requeue;
    POST "/v1/deadletters/{run}/purge" Operate Tenant dead_letters::purge;
    GET "/v1/tokens" Admin Tenant tokens::list;
    POST "/v1/tokens" Admin Tenant tokens::create;
    DELETE "/v1/tokens/{token}" Admin Tenant tokens::revoke;
    GET "/v1/rules" Read Cluster rules::list;
    PUT "/v1/rules/{name}" Admin Cluster rules::set;
    DELETE "/v1/rules/{name}" Admin Cluster rules::remove;
    GET "/v1/retention" Read Cluster retention::list;
    PUT "/v1/retention/{name}" Admin Cluster retention::set;
    DELETE "/v1/retention/{name}" Admin Cluster retention::remove;
    GET "/v1/holds" Read Cluster retention::holds;
    PUT "/v1/holds/{run}" Admin Cluster retention::hold;
    DELETE "/v1/holds/{run}" Admin Cluster retention::release;
    POST "/v1/gc" Operate Cluster retention::collect;
    GET "/v1/nodes" Read Cluster nodes::list;
    POST "/v1/nodes/{node}/drain" Operate Cluster nodes::drain;
    POST "/v1/nodes/{node}/resume" Operate Cluster nodes::resume;
    GET "/metrics" Read Cluster operations::metrics;
    POST "/execute" Run Tenant compatibility::execute, of_compatibility;
    POST "/handoff" Run Tenant compatibility::handoff, of_compatibility;
    GET "/capsules" Read Tenant compatibility::capsules, of_compatibility;
    GET "/capsules/{name}/schema" Read Tenant compatibility::schema, of_compatibility;
    GET "/visualizer/state" Read Tenant visualizer::state, of_compatibility;
}

/// Routes for nodes, which require the token of a run.
fn internal() -> Router<Shared> {
    Router::new()
        .route("/internal/v1/runs/{run}/calls", post(internal::call))
        .route("/internal/v1/runs/{run}/targets", get(internal::targets))
        .route(
            "/internal/v1/runs/{run}/calls/{child}/cancel",
            post(internal::cancel),
        )
}

/// Routes without a token, which return no data of tenants.
fn open() -> Router<Shared> {
    Router::new()
        .route("/health", get(operations::health))
        .route("/ready", get(operations::ready))
        .route("/openapi.json", get(operations::openapi))
        .route("/docs", get(operations::docs))
        .route("/docs/errors/{code}", get(operations::error_page))
        .route("/visualizer", get(visualizer::page))
}

async fn unknown_route(uri: Uri) -> Error {
    Error::new(
        ErrorCode::UnknownRoute,
        format!("the gateway has no route {}: see /docs", uri.path()),
    )
}

async fn wrong_method(method: Method, uri: Uri) -> Error {
    Error::malformed(format!("{} does not support {method}", uri.path()))
        .with_status(StatusCode::METHOD_NOT_ALLOWED)
}
