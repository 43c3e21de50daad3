//! `/v1/rules`: what operators lay down about admission.

use std::collections::BTreeMap;

use aod_api::SEQUENCE_HEADER;
use aod_api::problem::Problem;
use aod_api::rules::{RuleList, RuleView, SetRule};
use aod_domain::contract::pointer_part;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::CloudEvent;
use aod_domain::flow::{
    CAPSULES_MAX, Event, KeyPart, PARTS_MAX, RATE_SECONDS_MAX, RULES_MAX, RUNS_MAX, Rate, Rule,
    RuleName, TENANTS_MAX, WEIGHT_MAX, WEIGHTS_MAX,
};
use aod_domain::manifest::CapsuleName;
use aod_domain::tenant::Tenant;
use aod_ports::event_log::{Append, Guard};
use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};

use crate::context::{Context, Shared};
use crate::http::access::Principal;
use crate::http::body;
use crate::http::error::{ApiError, ApiResult};
use crate::http::fields::Fields;

/// Lists the rules, by their names.
#[utoipa::path(
    get, path = "/v1/rules", tag = "rules",
    responses(
        (status = 200, body = RuleList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
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

/// Makes a rule, or puts it in the place of the one of this name. Requests that come from now on wait by it; its
/// numbers count also for those that waited by it before.
#[utoipa::path(
    put, path = "/v1/rules/{name}", tag = "rules",
    params(("name" = String, Path, description = "1 to 63 of a-z, 0-9 and -")),
    request_body = SetRule,
    responses(
        (status = 200, body = RuleView, description = "Stored"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn set(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let name = rule_name(&name)?;
    let headers = request.headers().clone();
    let bytes = body::json(&headers, request.into_body()).await?;
    let rule = read(name, &bytes)?;
    let rules = context.admitter.rules();
    if rules.len() >= RULES_MAX && !rules.iter().any(|other| other.name == rule.name) {
        let text = format!("there are {RULES_MAX} rules, and may not be more");
        return Err(ApiError::malformed(text));
    }
    let event = Event::Set {
        rule: rule.clone(),
        requested_by: principal.name,
    };
    let sequence = store(&context, event).await?;
    let view = Json(view(&context, &rule));
    Ok(([sequence_header(sequence)], view).into_response())
}

/// Removes a rule. Who waited by it alone is admitted.
#[utoipa::path(
    delete, path = "/v1/rules/{name}", tag = "rules",
    params(("name" = String, Path)),
    responses(
        (status = 204, description = "Stored"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn remove(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    let name = rule_name(&name)?;
    if !context
        .admitter
        .rules()
        .iter()
        .any(|rule| rule.name == name)
    {
        let text = format!("there is no rule {name}");
        return Err(ApiError::new(ErrorCode::UnknownRule, text));
    }
    let requested_by = principal.name;
    let sequence = store(&context, Event::Removed { name, requested_by }).await?;
    Ok((StatusCode::NO_CONTENT, [sequence_header(sequence)]).into_response())
}

fn sequence_header(sequence: u64) -> (&'static str, HeaderValue) {
    (SEQUENCE_HEADER, HeaderValue::from(sequence))
}

fn rule_name(text: &str) -> ApiResult<RuleName> {
    text.parse()
        .map_err(|error| ApiError::malformed(format!("{error}")))
}

/// Stores the event; this gateway goes by it when this returns.
async fn store(context: &Context, event: Event) -> ApiResult<u64> {
    let subject = event.subject();
    let about = format!("rule/{}", event.name());
    let cloud_event = CloudEvent::new(context.runs.header(), about, None, event);
    let append = Append::of(subject, Guard::None, &cloud_event)
        .map_err(|error| ApiError::new(ErrorCode::PayloadTooLarge, error.to_string()))?;
    let sequence = context.runs.log().append(append).await?;
    context.admitter.wait_for_rule(sequence).await;
    Ok(sequence)
}

/// Reads the body strictly.
fn read(name: RuleName, bytes: &[u8]) -> ApiResult<Rule> {
    let mut fields = Fields::parse(bytes)?;
    let rule = Rule {
        name,
        capsules: fields.words::<CapsuleName>("capsules", CAPSULES_MAX),
        tenants: fields.words::<Tenant>("tenants", TENANTS_MAX),
        key: fields.words::<KeyPart>("key", PARTS_MAX),
        concurrency_max: fields.number("concurrency", 0, RUNS_MAX),
        rate: read_rate(&mut fields),
        is_fair: fields.flag("fair"),
        weights: read_weights(&mut fields),
    };
    if rule.is_fair && rule.key.is_empty() {
        fields.error(
            "/key",
            "expected at least one part: fair shares are those of keys",
        );
    }
    if !rule.is_fair && !rule.weights.is_empty() {
        fields.error("/weights", "expected none without `fair`");
    }
    fields.finish()?;
    Ok(rule)
}

fn read_rate(fields: &mut Fields) -> Option<Rate> {
    let mut given = fields.object("rate")?;
    let mut number = |key: &str, max: u32| {
        let value = given.remove(key).unwrap_or_default();
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| (1..=max).contains(number));
        if number.is_none() {
            let message = format!("{value} given; expected a whole number from 1 to {max}");
            fields.error(format!("/rate/{key}"), message);
        }
        number
    };
    let runs = number("runs", RUNS_MAX);
    let seconds = number("seconds", RATE_SECONDS_MAX);
    for key in given.keys() {
        let pointer = format!("/rate/{}", pointer_part(key));
        fields.error(pointer, "no such field; there are runs, seconds");
    }
    Some(Rate {
        runs: runs?,
        seconds: seconds?,
    })
}

fn read_weights(fields: &mut Fields) -> BTreeMap<String, u32> {
    let given = fields.object("weights").unwrap_or_default();
    if given.len() > WEIGHTS_MAX {
        fields.error("/weights", format!("expected at most {WEIGHTS_MAX}"));
    }
    let mut weights = BTreeMap::new();
    for (key, value) in given.into_iter().take(WEIGHTS_MAX) {
        let weight = value.as_u64().and_then(|weight| u32::try_from(weight).ok());
        match weight.filter(|weight| (1..=WEIGHT_MAX).contains(weight)) {
            Some(weight) => drop(weights.insert(key, weight)),
            None => {
                let pointer = format!("/weights/{}", pointer_part(&key));
                let text = format!("{value} given; expected a whole number from 1 to {WEIGHT_MAX}");
                fields.error(pointer, text);
            }
        }
    }
    weights
}
