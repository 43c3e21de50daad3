//! `/v1/rules`: flow-control rules.

use aod_api::problem::Problem;
use aod_api::rules::{RuleList, RuleView, SetRule};
use aod_domain::flow::{Event, Rule, RuleName};
use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::http::access::Principal;
use crate::http::body;
use crate::http::sequence;

/// Lists rules by name.
#[utoipa::path(
    get, path = "/v1/rules", tag = "rules", operation_id = "list_rules",
    responses(
        (status = 200, body = RuleList, description = "All rules"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn list(State(context): State<Shared>) -> Json<RuleList> {
    let items = context.admitter.rules();
    Json(RuleList {
        items: items.iter().map(|rule| view(&context, rule)).collect(),
    })
}

fn view(context: &Context, rule: &Rule) -> RuleView {
    let (going, waiting) = context.admitter.counts(&rule.name);
    RuleView {
        name: rule.name.to_string(),
        rule: SetRule::from(rule),
        going,
        waiting,
    }
}

/// Creates or replaces a rule.
///
/// The rule applies to new requests. Its new limits also apply to requests that already wait for it.
#[utoipa::path(
    put, path = "/v1/rules/{name}", tag = "rules", operation_id = "set_rule",
    params(("name" = String, Path, description = "Name of the rule: 1 to 63 characters of a-z, 0-9 and -")),
    request_body = SetRule,
    responses(
        (status = 200, body = RuleView, description = "The stored rule"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn set(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response> {
    let name = rule_name(&name)?;
    let headers = request.headers().clone();
    let bytes = body::json(&headers, request.into_body()).await?;
    let rule = SetRule::read(name, &bytes)?;
    let event = Event::Set {
        rule: rule.clone(),
        requested_by: principal.name,
    };
    let writer = context.runs.writer();
    let sequence = context.admitter.change(writer, &event).await?;
    let view = Json(view(&context, &rule));
    Ok(([sequence::header(sequence)], view).into_response())
}

/// Removes a rule; requests that wait only for this rule are admitted.
#[utoipa::path(
    delete, path = "/v1/rules/{name}", tag = "rules", operation_id = "remove_rule",
    params(("name" = String, Path)),
    responses(
        (status = 204, description = "Removed"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn remove(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> Result<Response> {
    let name = rule_name(&name)?;
    let requested_by = principal.name;
    let event = Event::Removed { name, requested_by };
    let writer = context.runs.writer();
    let sequence = context.admitter.change(writer, &event).await?;
    Ok((StatusCode::NO_CONTENT, [sequence::header(sequence)]).into_response())
}

fn rule_name(text: &str) -> Result<RuleName> {
    text.parse()
        .map_err(|error| Error::malformed(format!("{error}")))
}
