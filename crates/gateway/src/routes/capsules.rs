//! `/v1/capsules`: registers, lists, shows and removes capsules.

use std::sync::Arc;

use aod_api::capsules::{
    BaseView, CapsuleList, CapsuleView, LayersView, RegisteredCapsule, ResourcesView,
};
use aod_api::problem::Problem;
use aod_api::runs::RunView;
use aod_domain::capsule::{Handoffs, Openness};
use aod_domain::error_code::ErrorCode;
use aod_domain::subject::Pool;
use aod_services::program::inherit;
use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::capsules::catalogue::Registered;
use crate::capsules::registration::{self, Options, PACKAGE_BYTES_MAX, Prepared};
use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::http::access::Principal;
use crate::http::body::unsupported;
use crate::http::sequence;
use crate::parameters::Parameters;
use crate::reading;
use crate::streams::limited;

/// Registers a capsule. The body is its directory as a tar file.
///
/// The gateway checks the directory, lets a node build the image, and answers when the capsule can be called, which
/// may take many minutes. Repeated requests with the same directory join the same build. With
/// `Prefer: respond-async`, the gateway answers 202 with the build; send the request again after the build has ended.
#[utoipa::path(
    post, path = "/v1/capsules", tag = "capsules", operation_id = "register_capsule",
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    params(
        ("directory" = Option<String>, Query, description = "Name of the directory: the name of the capsule, unless agent.yaml contains one"),
        ("pool" = Option<String>, Query, description = "Pool of nodes for the build and for the runs of the capsule; default: `any`"),
        ("handoffs" = Option<String>, Query, description = "`open`: the capsule may call every capsule, as in agent-on-demand; default: `listed`"),
        ("egress" = Option<String>, Query, description = "`open`: the capsule may connect to every host that the operator of its node permits, as in agent-on-demand; default: `listed`"),
        ("bases" = Option<String>, Query, description = "`update`: build on the images to which the references of the Dockerfile refer now; default: `pinned`, the images of the registered version"),
    ),
    responses(
        (status = 200, body = RegisteredCapsule, description = "The same capsule is already registered"),
        (status = 201, body = RegisteredCapsule, description = "The capsule is registered"),
        (status = 202, body = RunView, description = "The image is being built"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn register(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Result<Response> {
    context.admit_root().await?;
    let options = options(&request, &principal)?;
    let is_async = is_async(request.headers());
    if !is_tar(request.headers()) {
        return Err(unsupported("application/x-tar"));
    }
    let incoming = limited(request.into_body().into_data_stream(), PACKAGE_BYTES_MAX);
    let package = context.ports.artifacts.put_stream(incoming).await?;
    let prepared = registration::prepare(&context, package, options).await?;
    if let Some(registered) = prepared.unchanged() {
        let capsule = view(&context, registered).await?;
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

/// Runs as its own task: the registration must follow the build even if the caller disconnects.
async fn finish(
    context: Shared,
    principal: Principal,
    prepared: Prepared,
    build: aod_domain::run::Run,
) -> Result<Response> {
    let id = build.id;
    let name = prepared.name().clone();
    let shared = Arc::clone(&context);
    let task = async move { registration::register(&shared, &prepared, &build).await };
    let registered = context.tasks.spawn(inherit(task)).await;
    let sequence = registered.map_err(|error| {
        Error::new(ErrorCode::Internal, "the registration failed").because(error)
    })??;
    let capsules = &context.capsules;
    let registered = capsules.get(&principal.tenant(), name.as_str()).await?;
    let capsule = view(&context, &registered).await?;
    let body = RegisteredCapsule {
        capsule,
        build: Some(id),
        is_unchanged: false,
    };
    let header = sequence::header(sequence);
    Ok((StatusCode::CREATED, [header], Json(body)).into_response())
}

fn options(request: &Request, principal: &Principal) -> Result<Options> {
    let mut parameters = Parameters::of(request.uri())?;
    let directory = parameters.text("directory");
    let pool = parameters
        .value("pool", "1 to 63 of a-z, 0-9 and -")
        .unwrap_or_else(Pool::any);
    let mut is_open = |name| match parameters.text(name).as_deref() {
        None | Some("listed") => false,
        Some("open") => true,
        Some(_) => {
            parameters.error(name, "expected open or listed");
            false
        }
    };
    let openness = Openness {
        handoffs: is_open("handoffs"),
        egress: is_open("egress"),
    };
    let updates_bases = match parameters.text("bases").as_deref() {
        None | Some("pinned") => false,
        Some("update") => true,
        Some(_) => {
            parameters.error("bases", "expected pinned or update");
            false
        }
    };
    parameters.finish()?;
    Ok(Options {
        directory,
        pool,
        openness,
        updates_bases,
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

/// Lists registered capsules.
#[utoipa::path(
    get, path = "/v1/capsules", tag = "capsules", operation_id = "list_capsules",
    responses(
        (status = 200, body = CapsuleList, description = "All capsules of the tenant"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
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

/// Shows a capsule with its schema and the layers of its image.
#[utoipa::path(
    get, path = "/v1/capsules/{name}", tag = "capsules", operation_id = "get_capsule",
    params(("name" = String, Path, description = "Title, alias or name of the capsule")),
    responses(
        (status = 200, body = CapsuleView, description = "The capsule"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn show(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> Result<Json<CapsuleView>> {
    let tenant = principal.tenant();
    let registered = context.capsules.get(&tenant, &name).await?;
    let compared = context.capsules.compared(&tenant, &registered.event);
    Ok(Json(CapsuleView {
        layers: Some(LayersView::from(compared)),
        ..view(&context, &registered).await?
    }))
}

/// Removes a capsule.
///
/// Nothing can call the capsule any more. Its recorded runs remain, and can be rerun as long as their artifacts exist.
#[utoipa::path(
    delete, path = "/v1/capsules/{name}", tag = "capsules", operation_id = "remove_capsule",
    params(("name" = String, Path, description = "Title, alias or name of the capsule")),
    responses(
        (status = 204, description = "The capsule is removed"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn remove(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> Result<Response> {
    let (tenant, by) = (principal.tenant(), &principal.name);
    let writer = context.runs.writer();
    let sequence = context.capsules.remove(&tenant, &name, by, writer).await?;
    let header = sequence::header(sequence);
    Ok((StatusCode::NO_CONTENT, [header]).into_response())
}

async fn view(context: &Context, registered: &Registered) -> Result<CapsuleView> {
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
        bases: registration.bases.iter().map(BaseView::from).collect(),
        pool: registration.pool.to_string(),
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
        layers: None,
        schema: None,
    }
}
