//! The visualizer of agent-on-demand: running runs, runs that ended recently, and their calls; and a page that shows
//! them.

use std::collections::HashMap;

use aod_api::compatibility::{VisualizerEdge, VisualizerNode, VisualizerState};
use aod_api::problem::Problem;
use aod_api::runs::{RunKind, RunState, RunSummary};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::{Html, IntoResponse as _, Response};
use jiff::{SignedDuration, Timestamp};

use crate::context::Shared;
use crate::error::Result;
use crate::http::access::Principal;

/// Maximum number of runs in the view.
const RUNS_MAX: usize = 500;

/// Time for which the view shows a run after its end, as agent-on-demand shows a call.
const SHOWN_FOR: SignedDuration = SignedDuration::from_mins(1);

/// The page, without external resources. It shows texts of capsules only as text.
const PAGE: &str = include_str!("visualizer/page.html");

/// Stands in [`PAGE`] for the nonce of one answer.
const NONCE_PLACEHOLDER: &str = "NONCE_OF_THIS_ANSWER";

/// Shows running runs, runs that ended within the last minute, and their calls.
#[utoipa::path(
    get, path = "/visualizer/state", tag = "compatibility", operation_id = "compatibility_get_state",
    responses((status = 200, body = VisualizerState, description = "At most 500 runs and their calls; times are seconds since 1970"), (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM)),
)]
pub(super) async fn state(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> Result<Json<VisualizerState>> {
    let runs = context.read_model.latest(&principal, RUNS_MAX).await?;
    Ok(Json(view(&runs, context.ports.clock.now())))
}

/// The page at `/visualizer`. It contains no data: its script reads `/visualizer/state`.
pub(super) async fn page(State(context): State<Shared>) -> Response {
    let nonce = context.ports.clock.fresh_uuid().simple().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Html(PAGE.replace(NONCE_PLACEHOLDER, &nonce))).into_response()
}

/// The view of `runs` at `now`.
fn view(runs: &[RunSummary], now: Timestamp) -> VisualizerState {
    let names: HashMap<_, _> = runs
        .iter()
        .map(|run| (run.id, run.capsule.as_str()))
        .collect();
    let is_recent = |run: &RunSummary| {
        run.ended_at
            .is_none_or(|ended_at| now.duration_since(ended_at) <= SHOWN_FOR)
    };
    // agent-on-demand shows no builds.
    let is_shown = |run: &&RunSummary| run.kind == RunKind::Capsule && is_recent(run);
    let shown = || runs.iter().filter(is_shown);
    VisualizerState {
        nodes: shown().map(node).collect(),
        edges: shown()
            .filter_map(|run| edge(run, names.get(&run.parent?)?))
            .collect(),
        timestamp: seconds(now),
    }
}

fn node(run: &RunSummary) -> VisualizerNode {
    let status = match run.state {
        RunState::Succeeded => "completed",
        state if state.is_ended() => "failed",
        _ => "running",
    };
    VisualizerNode {
        id: run.id.to_string(),
        session_id: run.id.to_string(),
        capsule_name: run.capsule.clone(),
        status: status.to_owned(),
        start_time: seconds(run.requested_at),
        container_id: None,
        parent_session_id: run.parent.map(|parent| parent.to_string()),
    }
}

/// The call of a run that has ended. agent-on-demand shows a call when it has its result.
fn edge(run: &RunSummary, caller_capsule: &str) -> Option<VisualizerEdge> {
    Some(VisualizerEdge {
        from: run.parent?.to_string(),
        to: run.id.to_string(),
        caller_capsule: caller_capsule.to_owned(),
        target_capsule: run.capsule.clone(),
        timestamp: seconds(run.ended_at?),
        success: run.state == RunState::Succeeded,
    })
}

/// Seconds since 1970, as in agent-on-demand.
fn seconds(instant: Timestamp) -> f64 {
    instant.as_duration().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use aod_domain::id::RunId;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    const NOW_SECONDS: i64 = 1_700_000_000;

    fn id(number: u128) -> String {
        RunId::root_of(Uuid::from_u128(number)).to_string()
    }

    /// A run that was requested two minutes ago, and ended `ended_ago` seconds ago.
    fn run(number: u128, parent: Option<u128>, state: &str, ended_ago: Option<i64>) -> RunSummary {
        let at = |ago: i64| {
            Timestamp::from_second(NOW_SECONDS - ago)
                .unwrap()
                .to_string()
        };
        serde_json::from_value(json!({
            "id": id(number),
            "root": id(1),
            "parent": parent.map(id),
            "kind": "capsule",
            "capsule": format!("capsule-{number}"),
            "state": state,
            "attempts": 1,
            "requested_at": at(120),
            "ended_at": ended_ago.map(at),
            "requested_by": "tester",
        }))
        .unwrap()
    }

    fn shown(runs: &[RunSummary]) -> Value {
        let now = Timestamp::from_second(NOW_SECONDS).unwrap();
        serde_json::to_value(view(runs, now)).unwrap()
    }

    #[test]
    fn view_has_the_fields_and_types_of_agent_on_demand() {
        let runs = [
            run(1, None, "waiting", None),
            run(2, Some(1), "succeeded", Some(10)),
        ];
        let expected = json!({
            "nodes": [
                {
                    "id": id(1), "session_id": id(1), "capsule_name": "capsule-1", "status": "running",
                    "start_time": 1_699_999_880.0, "container_id": null, "parent_session_id": null,
                },
                {
                    "id": id(2), "session_id": id(2), "capsule_name": "capsule-2", "status": "completed",
                    "start_time": 1_699_999_880.0, "container_id": null, "parent_session_id": id(1),
                },
            ],
            "edges": [{
                "from": id(1), "to": id(2), "caller_capsule": "capsule-1", "target_capsule": "capsule-2",
                "timestamp": 1_699_999_990.0, "success": true,
            }],
            "timestamp": 1_700_000_000.0,
        });
        assert_eq!(shown(&runs), expected);
    }

    #[test]
    fn view_shows_running_and_recently_ended_runs() {
        let build = RunSummary {
            kind: RunKind::Build,
            ..run(6, None, "running", None)
        };
        let runs = [
            build,
            run(1, None, "running", None),
            run(2, Some(1), "failed", Some(60)),
            run(3, Some(1), "timed_out", Some(61)),
            run(4, Some(1), "queued", None),
            run(5, Some(1), "cancelled", Some(0)),
        ];
        let state = shown(&runs);
        let nodes: Vec<_> = state["nodes"].as_array().unwrap().iter().collect();
        let statuses: Vec<_> = nodes.iter().map(|node| &node["status"]).collect();
        assert_eq!(statuses, ["running", "failed", "running", "failed"]);
        let edges: Vec<_> = state["edges"].as_array().unwrap().iter().collect();
        let calls: Vec<_> = edges
            .iter()
            .map(|edge| (&edge["to"], &edge["success"]))
            .collect();
        let (no, second, fifth) = (json!(false), json!(id(2)), json!(id(5)));
        assert_eq!(calls, [(&second, &no), (&fifth, &no)]);
    }

    #[test]
    fn page_shows_texts_of_capsules_only_as_text() {
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "://",
            " style=",
            " onclick=",
        ] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
        assert_eq!(
            PAGE.matches(NONCE_PLACEHOLDER).count(),
            2,
            "a style and a script"
        );
    }
}
