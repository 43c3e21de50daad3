//! `/v1/nodes`: lists, drains and resumes nodes.

use aod_api::nodes::{DevicesView, NodeList, NodeView};
use aod_api::problem::Problem;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::CloudEvent;
use aod_domain::id::NodeId;
use aod_domain::node::Event;
use aod_domain::run::LIMIT_SECONDS_MAX;
use aod_ports::event_log::{Append, Guard};
use aod_ports::presence::{NodeMember, Place};
use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::http::access::Principal;
use crate::http::sequence;
use crate::parameters::Parameters;
use crate::reading::pending_reason;

/// Lists live nodes.
#[utoipa::path(
    get, path = "/v1/nodes", tag = "nodes", operation_id = "list_nodes",
    responses(
        (status = 200, body = NodeList, description = "All live nodes"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn list(State(context): State<Shared>) -> Result<Json<NodeList>> {
    let mut items: Vec<NodeView> = nodes(&context).await?.into_iter().map(view).collect();
    items.sort_by(|one, other| (&one.host, one.id).cmp(&(&other.host, other.id)));
    Ok(Json(NodeList { items }))
}

/// Maximum time for a drain, in seconds: the maximum lifetime of a run.
const WITHIN_SECONDS_MAX: u32 = LIMIT_SECONDS_MAX;

/// Drains a node: it takes no new launches, and its runs continue.
///
/// With `within`, the node returns runs that have not ended by then to the queue, and other nodes repeat them.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/drain", tag = "nodes", operation_id = "drain_node",
    params(
        ("node" = String, Path),
        ("within" = Option<u32>, Query, description = "Seconds after which the node returns its remaining runs to the queue; default: never"),
    ),
    responses(
        (status = 202, body = NodeView, description = "The event is stored; the node applies it within moments"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn drain(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(node): Path<String>,
    uri: Uri,
) -> Result<Response> {
    let mut parameters = Parameters::of(&uri)?;
    let within_seconds = parameters.value("within", "a whole number of seconds");
    if within_seconds.is_some_and(|seconds| seconds > WITHIN_SECONDS_MAX) {
        let message = format!("expected at most {WITHIN_SECONDS_MAX} seconds");
        parameters.error("within", message);
    }
    parameters.finish()?;
    let member = find(&context, &node).await?;
    let event = Event::Drained {
        node: member.node,
        requested_by: principal.name,
        within_seconds,
    };
    store(&context, member, event).await
}

/// Resumes a node: it takes launches again.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/resume", tag = "nodes", operation_id = "resume_node",
    params(("node" = String, Path)),
    responses(
        (status = 202, body = NodeView, description = "The event is stored; the node applies it within moments"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn resume(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(node): Path<String>,
) -> Result<Response> {
    let member = find(&context, &node).await?;
    let event = Event::Resumed {
        node: member.node,
        requested_by: principal.name,
    };
    store(&context, member, event).await
}

async fn store(context: &Context, member: NodeMember, event: Event) -> Result<Response> {
    let subject = event.subject();
    let cloud_event = CloudEvent::new(context.runs.header(), member.node.to_string(), None, event);
    let append = Append::of(subject, Guard::None, &cloud_event)
        .map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
    let sequence = context.runs.log().append(append).await?;
    let header = sequence::header(sequence);
    Ok((StatusCode::ACCEPTED, [header], Json(view(member))).into_response())
}

async fn nodes(context: &Context) -> Result<Vec<NodeMember>> {
    let members = context.ports.presence.members().await?;
    Ok(members
        .into_iter()
        .filter_map(pending_reason::into_node)
        .collect())
}

/// The node with this id, or the only node on this host.
async fn find(context: &Context, text: &str) -> Result<NodeMember> {
    let id: Option<NodeId> = text.parse().ok();
    let mut found = nodes(context).await?;
    found.retain(|node| Some(node.node) == id || node.host == text);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Error::new(
            ErrorCode::UnknownNode,
            format!("no live node has the id or host name {text:.80?}"),
        )),
        count => Err(Error::new(
            ErrorCode::NameAmbiguous,
            format!("host {text:.80?} has {count} nodes: use the id of a node"),
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
        pools: node.pools.iter().map(ToString::to_string).collect(),
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
