//! `/v1/nodes`: who is there, and who shall take no new work.

use aod_api::SEQUENCE_HEADER;
use aod_api::nodes::{DevicesView, NodeList, NodeView};
use aod_api::problem::Problem;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::CloudEvent;
use aod_domain::id::NodeId;
use aod_domain::node::Event;
use aod_ports::event_log::{Append, Guard};
use aod_ports::presence::{NodeMember, Place};
use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};

use crate::context::{Context, Shared};
use crate::http::access::Principal;
use crate::http::error::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::routes::runs::DEADLINE_SECONDS_MAX;
use crate::waiting;

/// Lists the nodes that are there.
#[utoipa::path(
    get, path = "/v1/nodes", tag = "nodes",
    responses(
        (status = 200, body = NodeList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(State(context): State<Shared>) -> ApiResult<Json<NodeList>> {
    let mut items: Vec<NodeView> = nodes(&context).await?.into_iter().map(view).collect();
    items.sort_by(|one, other| (&one.host, one.id).cmp(&(&other.host, other.id)));
    Ok(Json(NodeList { items }))
}

/// Longest time that a draining node can be given, in seconds: as long as a run can live.
const WITHIN_SECONDS_MAX: u32 = DEADLINE_SECONDS_MAX;

/// The node shall take no new work; what it has goes on, or `within` so many seconds is handed back
/// to the queue, for other nodes to do it again.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/drain", tag = "nodes",
    params(
        ("node" = String, Path),
        ("within" = Option<u32>, Query, description = "Seconds; what has not ended then is handed back"),
    ),
    responses(
        (status = 202, body = NodeView, description = "Stored; the node follows within moments"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn drain(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(node): Path<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let mut parameters = Parameters::of(&uri)?;
    let within_seconds = parameters.value("within", "a whole number of seconds");
    if within_seconds.is_some_and(|seconds| seconds > WITHIN_SECONDS_MAX) {
        let message = format!("expected at most {WITHIN_SECONDS_MAX} seconds");
        parameters.error("within", message);
    }
    parameters.finish()?;
    let member = find(&context, &node).await?;
    let event = Event::DrainRequested {
        node: member.node,
        requested_by: principal.name,
        within_seconds,
    };
    store(&context, member, event).await
}

/// The node shall take work again.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/resume", tag = "nodes",
    params(("node" = String, Path)),
    responses(
        (status = 202, body = NodeView, description = "Stored; the node follows within moments"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn resume(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(node): Path<String>,
) -> ApiResult<Response> {
    let member = find(&context, &node).await?;
    let event = Event::ResumeRequested {
        node: member.node,
        requested_by: principal.name,
    };
    store(&context, member, event).await
}

async fn store(context: &Context, member: NodeMember, event: Event) -> ApiResult<Response> {
    let subject = event.subject();
    let cloud_event = CloudEvent::new(context.runs.header(), member.node.to_string(), None, event);
    let append = Append::of(subject, Guard::None, &cloud_event)
        .map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
    let sequence = context.runs.log().append(append).await?;
    let mut response = (StatusCode::ACCEPTED, Json(view(member))).into_response();
    response
        .headers_mut()
        .insert(SEQUENCE_HEADER, HeaderValue::from(sequence));
    Ok(response)
}

async fn nodes(context: &Context) -> ApiResult<Vec<NodeMember>> {
    let members = context.ports.presence.members().await?;
    Ok(members.into_iter().filter_map(waiting::into_node).collect())
}

/// The node of this id, or of this host if it is the only one there.
async fn find(context: &Context, text: &str) -> ApiResult<NodeMember> {
    let id: Option<NodeId> = text.parse().ok();
    let mut found = nodes(context).await?;
    found.retain(|node| Some(node.node) == id || node.host == text);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(ApiError::new(
            ErrorCode::UnknownNode,
            format!("no node {text:.80?} is there"),
        )),
        count => Err(ApiError::new(
            ErrorCode::NameAmbiguous,
            format!("{count} nodes are on {text:.80?}: name one by its id"),
        )),
    }
}

fn view(node: NodeMember) -> NodeView {
    let Place {
        equipment,
        devices_free,
        ..
    } = node.place;
    let devices = equipment.devices.iter().map(|(name, count)| {
        let free = devices_free.get(name).copied().unwrap_or_default();
        (
            name.to_string(),
            DevicesView {
                count: *count,
                free,
            },
        )
    });
    let attributes = equipment.attributes.iter();
    NodeView {
        id: node.node,
        host: node.host,
        version: node.version,
        labels: node.labels.iter().map(ToString::to_string).collect(),
        slots: node.slots,
        running: node.running,
        waiting: node.waiting,
        containers: node.containers,
        draining: node.draining,
        attributes: attributes
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect(),
        devices: devices.collect(),
        cpu_millis: equipment.cpu_millis,
        memory_bytes: equipment.memory_bytes,
        not_ready: node.not_ready,
        no_roots: node.no_roots,
    }
}
