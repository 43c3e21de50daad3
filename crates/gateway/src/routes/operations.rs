//! Health, metrics, and the pages about the API.

use std::collections::BTreeMap;
use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::placement::{self, is_for_requirements};
use aod_domain::subject::Pool;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Value, json};

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::metrics::QueueName;
use crate::openapi;

/// Reports that the gateway runs, even if the broker does not respond.
#[utoipa::path(get, path = "/health", tag = "operations", operation_id = "get_health", security(()), responses((status = 200, description = "The gateway runs")))]
pub(super) async fn health() -> Json<Value> {
    Json(
        json!({"status": "healthy", "service": "aod-gateway", "version": env!("CARGO_PKG_VERSION")}),
    )
}

/// Reports whether the gateway can serve requests, because the broker answers.
#[utoipa::path(get, path = "/ready", tag = "operations", operation_id = "get_readiness", security(()), responses(
   (status = 200, description = "The broker responds"), (status = 503, description = "The broker does not respond, or the gateway is stopping")
))]
pub(super) async fn ready(State(context): State<Shared>) -> Result<Json<Value>> {
    if context.shutdown.is_cancelled() {
        return Err(Error::new(
            ErrorCode::BrokerUnavailable,
            "the gateway is stopping",
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

/// Returns metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operations", operation_id = "get_metrics", responses((status = 200, content_type = "text/plain", body = String, description = "The metrics")))]
pub(super) async fn metrics(State(context): State<Shared>) -> Response {
    // If the broker does not answer, its metrics keep their last values.
    for waiting in context.ports.queue.waiting().await.unwrap_or_default() {
        let name = queue_name(&context, &waiting.pool).await;
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
        // A run that pauses after a failure waits since a time in the future.
        let wait = Duration::from_millis(u64::try_from(now - since).unwrap_or_default());
        let name = queue_name(context, &queue).await;
        waits.insert(name, wait.as_secs_f64());
    }
    context.metrics.set_oldest(&waits);
}

/// The labels of `queue` in metrics; an unknown queue has its own name as pool.
async fn queue_name(context: &Context, queue: &Pool) -> QueueName {
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
        Some(placement::Event::QueueOpened { pool, requirements }) => QueueName {
            pool: pool.to_string(),
            requirements: requirements.to_string(),
        },
        None => QueueName {
            pool: queue.to_string(),
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

/// The page about an error code, to which `type` of a problem refers.
pub(super) async fn error_page(Path(code): Path<String>) -> Result<Response> {
    let code = ErrorCode::named(&code).ok_or_else(|| {
        let text = "unknown error code: `GET /docs` lists the routes of the API";
        Error::new(ErrorCode::UnknownRoute, text)
    })?;
    let kind = [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")];
    Ok((StatusCode::OK, kind, code.page()).into_response())
}
