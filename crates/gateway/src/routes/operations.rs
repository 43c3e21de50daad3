//! Whether the gateway works, what it counts, and the pages about its API.

use std::collections::BTreeMap;
use std::time::Duration;

use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::placement::{self, is_for_requirements};
use aod_domain::subject::Label;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Value, json};

use crate::context::{Context, Shared};
use crate::http::error::{ApiError, ApiResult};
use crate::metrics::QueueName;
use crate::openapi;

/// The process answers; the broker may not.
#[utoipa::path(get, path = "/health", tag = "operations", security(()), responses((status = 200, description = "The process answers")))]
pub(super) async fn health() -> Json<Value> {
    Json(
        json!({"status": "healthy", "service": "aod-gateway", "version": env!("CARGO_PKG_VERSION")}),
    )
}

/// Requests will be served: the broker answers.
#[utoipa::path(get, path = "/ready", tag = "operations", security(()), responses(
    (status = 200, description = "The broker answers"), (status = 503, description = "It does not")
))]
pub(super) async fn ready(State(context): State<Shared>) -> ApiResult<Json<Value>> {
    if context.shutdown.is_cancelled() {
        return Err(ApiError::new(
            ErrorCode::BrokerUnavailable,
            "the gateway is ending",
        ));
    }
    let fill = context.runs.log().fill().await?;
    Ok(Json(json!({
        "status": "ready",
        "gateway": context.gateway,
        "log": {"bytes": fill.bytes, "bytes_max": fill.bytes_max, "last_sequence": fill.last_sequence},
        "read_model": {"as_of": context.read_model.sequence()},
    })))
}

/// Figures in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn metrics(State(context): State<Shared>) -> Response {
    // Without the broker the figures that are its own stay as they were.
    for waiting in context.ports.queue.waiting().await.unwrap_or_default() {
        let name = queue_name(&context, &waiting.label).await;
        context
            .metrics
            .set_queue(name, waiting.class, waiting.pending);
    }
    if let Ok(oldest) = context.read_model.oldest_queued().await {
        set_oldest(&context, oldest).await;
    }
    let read_model_sequence = context.read_model.sequence();
    if let Ok(fill) = context.runs.log().fill().await {
        let lag = fill.last_sequence.saturating_sub(read_model_sequence);
        context.metrics.set_read_model_lag(lag);
    }
    context.metrics.set_requested(context.admitter.waiting());
    let text = context
        .metrics
        .encode(context.waiters.count(), read_model_sequence);
    (
        [(
            header::CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        text,
    )
        .into_response()
}

async fn set_oldest(context: &Context, oldest: Vec<(String, i64)>) {
    let now = context.ports.clock.now().as_millisecond();
    let mut waits = BTreeMap::new();
    for (queue, since) in oldest {
        let Ok(queue) = queue.parse() else { continue };
        // Who rests after a failure waits from some time to come on.
        let wait = Duration::from_millis(u64::try_from(now - since).unwrap_or_default());
        let name = queue_name(context, &queue).await;
        waits.insert(name, wait.as_secs_f64());
    }
    context.metrics.set_oldest(&waits);
}

/// How figures name `queue`; one that nobody has said anything of by its own name.
async fn queue_name(context: &Context, queue: &Label) -> QueueName {
    let event = if is_for_requirements(queue) {
        context
            .queues
            .what_for(context, queue)
            .await
            .unwrap_or_default()
    } else {
        None
    };
    match event.as_deref() {
        Some(placement::Event::Asked {
            label,
            requirements,
        }) => QueueName {
            label: label.to_string(),
            requirements: requirements.to_string(),
        },
        None => QueueName {
            label: queue.to_string(),
            requirements: String::new(),
        },
    }
}

pub(super) async fn openapi() -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        openapi::document(),
    )
        .into_response()
}

pub(super) async fn docs() -> Html<String> {
    Html(openapi::page())
}

/// What a code means: the place that `type` of a problem names.
pub(super) async fn error_page(Path(code): Path<String>) -> ApiResult<Response> {
    let Some(code) = ErrorCode::ALL.iter().find(|known| known.as_str() == code) else {
        return Err(ApiError::new(
            ErrorCode::UnknownRoute,
            "no error has this code",
        ));
    };
    let mend = match code.source() {
        ErrorSource::Capsule => "The capsule's author can mend it.",
        ErrorSource::Caller => "Whoever asked for the run can mend it.",
        ErrorSource::Platform => {
            "The operator can mend it; AOD tries again by itself where that can help."
        }
    };
    let again = if code.is_retryable() {
        "The same request may succeed later."
    } else {
        "The same request will fail again."
    };
    let text = format!(
        "{code}\n\n{}.\n{mend}\n{again}\n",
        capitalized(code.title())
    );
    Ok((
        StatusCode::OK,
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        text,
    )
        .into_response())
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + characters.as_str()
    })
}
