//! `/v1/capsules`: registered from a packed directory, listed, shown.

use std::sync::Arc;

use aod_api::SEQUENCE_HEADER;
use aod_api::capsules::{CapsuleList, CapsuleView, RegisteredCapsule, ResourcesView};
use aod_api::problem::Problem;
use aod_api::runs::RunView;
use aod_domain::capsule::Handoffs;
use aod_domain::error_code::ErrorCode;
use aod_domain::subject::Label;
use aod_ports::program::inherit;
use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::catalogue::Registered;
use crate::context::{Context, Shared};
use crate::http::access::Principal;
use crate::http::body::{limited, unsupported};
use crate::http::error::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::reading;
use crate::registration::{self, Options, PACKAGE_BYTES_MAX, Prepared};

/// Registers a capsule: the body is its directory as a tar file.
///
/// Checks it, has a node build the image, and answers when the capsule can be called, which may
/// take many minutes; the same directory is built once, however often it is sent. With
/// `Prefer: respond-async` it answers 202 with the build, and is to be sent again after that.
#[utoipa::path(
    post, path = "/v1/capsules", tag = "capsules",
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    params(
        ("directory" = Option<String>, Query, description = "Name of the directory: the capsule's, unless agent.yaml names it"),
        ("label" = Option<String>, Query, description = "Which nodes build it and take its runs; `any` unless given"),
        ("handoffs" = Option<String>, Query, description = "`open` lets it call everyone, as capsules of the original do"),
    ),
    responses(
        (status = 200, body = RegisteredCapsule, description = "It was registered before"),
        (status = 201, body = RegisteredCapsule),
        (status = 202, body = RunView, description = "It is being built"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn register(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> ApiResult<Response> {
    context.admit_root().await?;
    let options = options(&request, &principal)?;
    let is_async = is_async(request.headers());
    if !is_tar(request.headers()) {
        return Err(unsupported("application/x-tar"));
    }
    let incoming = limited(request.into_body().into_data_stream(), PACKAGE_BYTES_MAX);
    let package = context.ports.artifacts.put_stream(incoming).await?;
    let prepared = registration::prepare(&context, package, options).await?;
    if let Ok(registered) = context
        .capsules
        .find(&principal.tenant(), prepared.name().as_str())
        && prepared.is_registered_as(&registered.event)
    {
        let capsule = view(&context, &registered).await?;
        return Ok(Json(RegisteredCapsule {
            capsule,
            build: None,
            is_unchanged: true,
        })
        .into_response());
    }
    let build = registration::build(&context, &prepared).await?;
    if is_async && build.ended().is_none() {
        let location = HeaderValue::from_str(&format!("/v1/runs/{}", build.id))
            .expect("an id is a plain word");
        let view = reading::view_of(&context, build).await?;
        return Ok((
            StatusCode::ACCEPTED,
            [(header::LOCATION, location)],
            Json(view),
        )
            .into_response());
    }
    finish(context, principal, prepared, build).await
}

/// On a task of its own: a caller that goes away must not leave an image without its registration.
async fn finish(
    context: Shared,
    principal: Principal,
    prepared: Prepared,
    build: aod_domain::run::Run,
) -> ApiResult<Response> {
    let id = build.id;
    let name = prepared.name().clone();
    let shared = Arc::clone(&context);
    let task = async move { registration::register(&shared, &prepared, &build).await };
    let registered = context.tasks.spawn(inherit(task)).await;
    let sequence = registered.map_err(|error| {
        ApiError::new(ErrorCode::Internal, "it was not registered").because(error)
    })??;
    let capsules = &context.capsules;
    let registered = capsules.get(&principal.tenant(), name.as_str()).await?;
    let capsule = view(&context, &registered).await?;
    let body = RegisteredCapsule {
        capsule,
        build: Some(id),
        is_unchanged: false,
    };
    let mut response = (StatusCode::CREATED, Json(body)).into_response();
    response
        .headers_mut()
        .insert(SEQUENCE_HEADER, HeaderValue::from(sequence));
    Ok(response)
}

fn options(request: &Request, principal: &Principal) -> ApiResult<Options> {
    let mut parameters = Parameters::of(request.uri())?;
    let directory = parameters.text("directory");
    let label = parameters
        .value("label", "1 to 63 of a-z, 0-9 and -")
        .unwrap_or_else(Label::any);
    let is_open = match parameters.text("handoffs").as_deref() {
        None | Some("listed") => false,
        Some("open") => true,
        Some(_) => {
            parameters.error("handoffs", "expected open or listed");
            false
        }
    };
    parameters.finish()?;
    Ok(Options {
        directory,
        label,
        is_open,
        tenant: principal.tenant(),
        registered_by: principal.name.clone(),
    })
}

fn is_async(headers: &HeaderMap) -> bool {
    let preferences = headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok());
    preferences
        .into_iter()
        .any(|value| value.to_ascii_lowercase().contains("respond-async"))
}

fn is_tar(headers: &HeaderMap) -> bool {
    let text = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    matches!(
        text.split(';').next().map(str::trim),
        Some("application/x-tar" | "application/tar")
    )
}

/// Lists the registered capsules.
#[utoipa::path(
    get, path = "/v1/capsules", tag = "capsules",
    responses(
        (status = 200, body = CapsuleList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> Json<CapsuleList> {
    let items = context
        .capsules
        .all(&principal.tenant())
        .iter()
        .map(view_without_schema)
        .collect();
    Json(CapsuleList { items })
}

/// Shows one capsule with its schema.
#[utoipa::path(
    get, path = "/v1/capsules/{name}", tag = "capsules",
    params(("name" = String, Path, description = "Title, alias or name")),
    responses(
        (status = 200, body = CapsuleView),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn show(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> ApiResult<Json<CapsuleView>> {
    let registered = context.capsules.get(&principal.tenant(), &name).await?;
    Ok(Json(view(&context, &registered).await?))
}

async fn view(context: &Context, registered: &Registered) -> ApiResult<CapsuleView> {
    let schema = context
        .capsules
        .schema(&registered.event)
        .await?
        .document
        .clone();
    Ok(CapsuleView {
        schema: Some(schema),
        ..view_without_schema(registered)
    })
}

fn view_without_schema(registered: &Registered) -> CapsuleView {
    let registration = &registered.event;
    let secrets = registration.needs.secrets.iter();
    CapsuleView {
        name: registration.name.to_string(),
        title: registration.title.clone(),
        description: registration.description.clone(),
        aliases: registration.aliases.clone(),
        content: registration.content,
        image: registration.image.config_digest.clone(),
        label: registration.label.to_string(),
        resources: ResourcesView::from(&registration.resources),
        handoffs: match &registration.handoffs {
            Handoffs::Listed(grants) => {
                Some(grants.iter().map(|grant| grant.target.clone()).collect())
            }
            Handoffs::Open => None,
        },
        secrets: secrets.map(|secret| secret.name.clone()).collect(),
        egress: registration
            .needs
            .egress
            .iter()
            .map(ToString::to_string)
            .collect(),
        registered_at: registered.time,
        registered_by: registration.registered_by.clone(),
        schema: None,
    }
}
