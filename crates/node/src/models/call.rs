//! A call of a model: read, checked, reserved, sent to its provider.

use std::sync::Arc;
use std::time::Duration;

use aod_api::problem::Problem;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::EventId;
use aod_domain::spending::{Command, ModelCall, Price, Worst};
use aod_domain::tenant::Tenant;
use aod_ports::secrets::SecretValue;
use axum::body::{Body, Bytes};
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::Response;
use tokio::sync::OwnedSemaphorePermit;
use tracing::warn;

use super::access::ModelAccess;
use super::asked::{Asked, Unread};
use super::body::Fields;
use super::format::{Way, way, ways};
use super::refusal;
use super::settings::{Format, Provider};
use super::settlement::Settlement;
use super::wire::{address, headers_for, mark, pass_on};
use crate::problem::{self, Members};
use aod_services::error::chain;

/// Maximum size of a request, in bytes: it contains pictures and documents. Source: the maximum of Anthropic; other
/// providers accept less.
const BODY_BYTES_MAX: usize = 32 << 20;

/// How long the body of a request may take to arrive: the client is on this host.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of calls of one attempt, the same as runs in a tree. Each call is an event, even a free one.
const CALLS_MAX: u64 = 10_000;

/// A parsed and permitted request.
struct Call {
    way: Way,
    asked: Asked,
    price: Option<Price>,
    worst: Option<Worst>,
    body: Bytes,
}

impl ModelAccess {
    /// Reads a body if the capsule may use any model, once the node has memory for it.
    async fn take(
        &self,
        body: Body,
        headers: &HeaderMap,
    ) -> Result<(Bytes, OwnedSemaphorePermit), Box<Problem>> {
        if self.asker.grant.is_none() {
            let text = format!("{}: its agent.yaml allows no model", self.asker.capsule);
            return Err(Box::new(Problem::new(ErrorCode::ModelNotAllowed, text)));
        }
        if self.calls() >= CALLS_MAX {
            let text = format!("this attempt has made {CALLS_MAX} calls of models, the maximum");
            return Err(Box::new(Problem::new(ErrorCode::CallsExhausted, text)));
        }
        self.read_body(body, headers, BODY_BYTES_MAX).await
    }

    /// Reads a body of at most `bytes_max`, once the node has memory for it.
    pub(crate) async fn read_body(
        &self,
        body: Body,
        headers: &HeaderMap,
        bytes_max: usize,
    ) -> Result<(Bytes, OwnedSemaphorePermit), Box<Problem>> {
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let length: usize = length.unwrap_or(bytes_max);
        let too_large = || {
            let text = format!("the request is too large; expected at most {bytes_max} bytes");
            Box::new(Problem::new(ErrorCode::PayloadTooLarge, text))
        };
        if length > bytes_max {
            return Err(too_large());
        }
        let memory = self.models.memory_for(length).await;
        let body = axum::body::to_bytes(body, length);
        match tokio::time::timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(body)) => Ok((body, memory)),
            Ok(Err(_)) => Err(too_large()),
            Err(_) => {
                let seconds = BODY_TIMEOUT.as_secs();
                let text = format!("the request did not arrive within {seconds} s");
                Err(Box::new(Problem::new(ErrorCode::RequestMalformed, text)))
            }
        }
    }

    async fn call(
        self: &Arc<Self>,
        (name, path): (&str, &str),
        query: Option<&str>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response, Box<Problem>> {
        let provider = self.provider(name)?;
        let call = self.read((name, provider), path, body)?;
        let model_call = ModelCall {
            id: EventId::new(self.models.runs.clock().fresh_uuid()),
            run: self.asker.run,
            attempt: self.asker.attempt,
            provider: name.to_owned(),
            model: call.asked.model.clone(),
        };
        let mut settlement = Settlement::new(
            Arc::clone(self),
            model_call.clone(),
            call.price,
            call.worst,
            call.asked.is_streamed,
        );
        if let Some(worst) = call.worst {
            settlement.reserving();
            if let Err(refused) = self.reserve(model_call, worst).await {
                settlement.forget();
                return Err(refused);
            }
        }
        let key = self.key(provider).await?;
        let exposed = key.as_ref().map(SecretValue::expose);
        let internal = |error| Box::new(Problem::new(ErrorCode::Internal, chain(&error)));
        let request = self
            .models
            .client()
            .map_err(internal)?
            .post(address(provider, path, query))
            .headers(headers_for(provider.format, headers, exposed))
            .body(call.body.clone());
        settlement.sending(&call.body, key.as_ref());
        match request.send().await {
            Ok(answer) => Ok(pass_on(answer, call.way, settlement, exposed).await),
            Err(error) => {
                // An unreachable provider has charged nothing.
                if error.is_connect() || error.is_builder() {
                    settlement.refused();
                }
                let reason = chain(&error.without_url());
                let text = format!("the node cannot reach the provider {name}: {reason}");
                Err(Box::new(Problem::new(ErrorCode::ModelUnreachable, text)))
            }
        }
    }

    fn provider(&self, name: &str) -> Result<&Provider, Box<Problem>> {
        let providers = &self.models.settings.providers;
        providers.get(name).ok_or_else(|| {
            let known: Vec<_> = providers.keys().map(String::as_str).collect();
            let text = format!(
                "unknown model provider {name:.80}; expected one of {}",
                known.join(", ")
            );
            Box::new(Problem::new(ErrorCode::UnknownProvider, text))
        })
    }

    /// Parses a request and checks that the capsule may make it.
    fn read(
        &self,
        (name, provider): (&str, &Provider),
        path: &str,
        body: Bytes,
    ) -> Result<Call, Box<Problem>> {
        let format = provider.format;
        let (way, model) = way(format, path).ok_or_else(|| {
            let text = format!("{name} has no path {path:.80}; expected {}", ways(format));
            Box::new(Problem::new(ErrorCode::UnknownRoute, text))
        })?;
        let unread = |unread| match unread {
            Unread::Malformed(text) => Box::new(Problem::new(ErrorCode::RequestMalformed, text)),
            Unread::Forbidden(text) => Box::new(Problem::new(ErrorCode::ModelNotAllowed, text)),
        };
        let size_bytes = body.len();
        let mut fields = Fields::parse(&body).map_err(|text| unread(text.into()))?;
        drop(body);
        let mut asked = way.read(&fields, model).map_err(unread)?;
        let model = format!("{name}/{}", asked.model);
        self.check_allowed(name, &asked.model)?;
        let budgets = [self.asker.tree, self.asker.own()];
        let is_limited = budgets.iter().any(|budget| !budget.is_none());
        let price = self.models.settings.prices.get(name, &asked.model).copied();
        way.ask_for_usage(&mut fields, &asked).map_err(unread)?;
        let worst = is_limited.then(|| {
            way.bound(name, &mut fields, &mut asked);
            worst(price, size_bytes, &asked)
        });
        let is_cost_limited = budgets.iter().any(|budget| budget.cost_max.is_some());
        if price.is_none() && is_cost_limited {
            return Err(Box::new(refusal::unpriced(&model)));
        }
        Ok(Call {
            way,
            asked,
            price,
            worst,
            body: fields.to_bytes(),
        })
    }

    fn check_allowed(&self, provider: &str, model: &str) -> Result<(), Box<Problem>> {
        let names = match &self.asker.grant {
            Some(grant) if grant.allows(provider, model) => return Ok(()),
            Some(grant) => format!("its agent.yaml allows {}", grant.names.join(", ")),
            None => "its agent.yaml allows no model".to_owned(),
        };
        let capsule = &self.asker.capsule;
        let text = format!("{capsule} may not use {provider}/{model:.128}; {names}");
        Err(Box::new(Problem::new(ErrorCode::ModelNotAllowed, text)))
    }

    /// The operator's key, the same for all tenants.
    async fn key(&self, provider: &Provider) -> Result<Option<SecretValue>, Box<Problem>> {
        let Some(name) = &provider.key else {
            return Ok(None);
        };
        match self.models.secrets.get(&Tenant::default(), name).await {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                // Only the log of the node says where the operator stores the key.
                warn!(run = %self.asker.run, error = %chain(&error), "the node cannot get the key of a provider");
                let text = format!(
                    "this node has no usable secret {name}; the operator of the node must add the secret"
                );
                Err(Box::new(Problem::new(ErrorCode::ModelKeyMissing, text)))
            }
        }
    }

    async fn reserve(&self, call: ModelCall, worst: Worst) -> Result<(), Box<Problem>> {
        let model = format!("{}/{}", call.provider, call.model);
        let command = Command::Reserve {
            call,
            worst,
            tree: self.asker.tree,
            own: self.asker.own(),
        };
        let (tenant, root) = (&self.asker.tenant, self.asker.run.root());
        let reserved = self.models.accounts.handle(tenant, root, &command).await;
        reserved.map_err(|error| Box::new(refusal::of_spending(&model, &error)))
    }
}

/// A token has at least one byte, so a request has at most one token for each byte.
fn worst(price: Option<Price>, body_bytes: usize, asked: &Asked) -> Worst {
    let input = body_bytes as u64;
    let output = asked.output_tokens_max.unwrap_or_default();
    let output = output.saturating_mul(asked.answers);
    price.map_or(
        Worst {
            tokens: input.saturating_add(output),
            cost: None,
        },
        |price| price.worst(input, output),
    )
}

/// Serves `/llm/<provider>/<path>`.
pub(crate) async fn forward(
    State(access): State<Arc<ModelAccess>>,
    UrlPath((provider, path)): UrlPath<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let called = match access.take(body, &headers).await {
        Ok((body, _memory)) => {
            let place = (provider.as_str(), path.as_str());
            access.call(place, uri.query(), &headers, body).await
        }
        Err(refused) => Err(refused),
    };
    match called {
        Ok(response) => response,
        Err(refused) => {
            let target = format!("{provider:.80}/{path:.200}");
            // Before the answer: a capsule that repeats refused requests waits for each note.
            access.notes.call_refused(&target, &refused).await;
            let provider = access.models.settings.providers.get(&provider);
            let format = provider.map_or(Format::OpenAi, |provider| provider.format);
            let mut response = problem::response(&refused);
            let members = Members(refusal::members(format, &refused));
            response.extensions_mut().insert(members);
            // A retry would be refused too.
            response.headers_mut().remove(header::RETRY_AFTER);
            mark(&mut response, "platform");
            response
        }
    }
}
