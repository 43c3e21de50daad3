//! What one attempt may have of models, and the calls that it makes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_api::problem::Problem;
use aod_domain::capsule::ModelGrant;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::{EventId, RunId};
use aod_domain::manifest::CapsuleName;
use aod_domain::run::{Run, Work};
use aod_domain::spending::{Budget, Command, ModelCall, Price, Spent, Worst};
use aod_domain::tenant::Tenant;
use aod_ports::secrets::SecretValue;
use axum::body::{Body, Bytes};
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::Response;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::Models;
use super::asked::{Asked, Unread};
use super::body::Fields;
use super::format::{Way, way, ways};
use super::refusal;
use super::settings::Provider;
use super::settlement::Settlement;
use super::wire::{address, headers_for, mark, pass_on};
use crate::calls::chain;
use crate::channel::problem;
use crate::notes::Refusals;
use crate::redaction::Redaction;

/// How long the end of an attempt waits until what its calls took is stored.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a request: pictures and documents travel in it. Source: the largest that Anthropic takes;
/// others take less.
const BODY_BYTES_MAX: usize = 32 << 20;

/// How long a request may take to come in: it comes from this host.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Calls of one attempt: as many as a tree may have runs. Each is an event, also one that costs nothing.
const CALLS_MAX: u64 = 10_000;

/// What one attempt may have of models.
#[derive(Debug)]
pub(crate) struct ModelAccess {
    pub(super) models: Arc<Models>,
    asker: Asker,
    spent: Mutex<Spent>,
    refusals: Refusals,
    pub(super) redaction: Redaction,
    pub(super) tasks: TaskTracker,
}

/// Who asks, and what it may have.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) tenant: Tenant,
    pub(crate) run: RunId,
    pub(crate) attempt: u32,
    pub(crate) capsule: CapsuleName,
    pub(crate) grant: Option<ModelGrant>,
    /// Of the whole tree.
    pub(crate) tree: Budget,
}

impl Asker {
    pub(crate) fn of(run: &Run, attempt: u32) -> Self {
        let launched = &run.launched.event;
        Self {
            tenant: launched.tenant.clone(),
            run: run.id,
            attempt,
            capsule: launched.work.name().clone(),
            grant: match &launched.work {
                Work::Capsule { models, .. } => models.as_deref().cloned(),
                Work::Build { .. } => None,
            },
            tree: launched.budget,
        }
    }

    /// What `agent.yaml` allows the run alone.
    fn own(&self) -> Budget {
        self.grant
            .as_ref()
            .map(|grant| grant.budget)
            .unwrap_or_default()
    }
}

/// A request that was read and may be made.
struct Call {
    way: Way,
    asked: Asked,
    price: Option<Price>,
    worst: Option<Worst>,
    body: Bytes,
}

impl ModelAccess {
    /// What `redaction` takes out is not kept of requests and answers.
    pub(crate) fn new(
        models: Arc<Models>,
        asker: Asker,
        refusals: Refusals,
        redaction: Redaction,
    ) -> Arc<Self> {
        Arc::new(Self {
            models,
            asker,
            spent: Mutex::default(),
            refusals,
            redaction,
            tasks: TaskTracker::new(),
        })
    }

    /// What the attempt took, once all its calls are settled or took too long to be; none if it made none.
    pub(crate) async fn settled(&self) -> Option<Spent> {
        self.tasks.close();
        // What is not stored by then is counted as reserved.
        let _ = tokio::time::timeout(SETTLE_PATIENCE, self.tasks.wait()).await;
        let spent = *self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        (spent.model_calls > 0).then_some(spent)
    }

    pub(super) const fn run(&self) -> RunId {
        self.asker.run
    }

    pub(super) const fn tenant(&self) -> &Tenant {
        &self.asker.tenant
    }

    pub(super) fn add(&self, spent: Spent) {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner) += spent;
    }

    /// Takes a body in, if the capsule may ask for anything at all and the node has room for it.
    async fn take(
        &self,
        body: Body,
        headers: &HeaderMap,
    ) -> Result<(Bytes, OwnedSemaphorePermit), Box<Problem>> {
        if self.asker.grant.is_none() {
            let text = format!("{}: its agent.yaml names no model", self.asker.capsule);
            return Err(Box::new(Problem::new(ErrorCode::ModelNotAllowed, text)));
        }
        if self.calls() >= CALLS_MAX {
            let text = format!("this attempt has asked models {CALLS_MAX} times");
            return Err(Box::new(Problem::new(ErrorCode::CallsExhausted, text)));
        }
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let length: usize = length.unwrap_or(BODY_BYTES_MAX);
        let too_large = || {
            let text = format!("a request for a model has at most {BODY_BYTES_MAX} bytes");
            Box::new(Problem::new(ErrorCode::PayloadTooLarge, text))
        };
        if length > BODY_BYTES_MAX {
            return Err(too_large());
        }
        let room = self.models.room_for(length).await;
        let body = axum::body::to_bytes(body, length);
        match tokio::time::timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(body)) => Ok((body, room)),
            Ok(Err(_)) => Err(too_large()),
            Err(_) => {
                let text = format!(
                    "the request was not here within {} s",
                    BODY_TIMEOUT.as_secs()
                );
                Err(Box::new(Problem::new(ErrorCode::RequestMalformed, text)))
            }
        }
    }

    fn calls(&self) -> u64 {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.model_calls
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
                // A provider that was never reached has charged nothing.
                if error.is_connect() || error.is_builder() {
                    settlement.refused();
                }
                let text = format!("{name} cannot be reached: {}", chain(&error.without_url()));
                Err(Box::new(Problem::new(ErrorCode::ModelUnreachable, text)))
            }
        }
    }

    fn provider(&self, name: &str) -> Result<&Provider, Box<Problem>> {
        let providers = &self.models.settings.providers;
        providers.get(name).ok_or_else(|| {
            let known: Vec<_> = providers.keys().map(String::as_str).collect();
            let text = format!("{name:.80}; there are {}", known.join(", "));
            Box::new(Problem::new(ErrorCode::UnknownProvider, text))
        })
    }

    /// Reads a request and sees to it that it may be made.
    fn read(
        &self,
        (name, provider): (&str, &Provider),
        path: &str,
        body: Bytes,
    ) -> Result<Call, Box<Problem>> {
        let format = provider.format;
        let (way, model) = way(format, path).ok_or_else(|| {
            let text = format!("{name} is asked for {}, not {path:.80}", ways(format));
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
            Some(grant) => format!("its agent.yaml names {}", grant.names.join(", ")),
            None => "its agent.yaml names no model".to_owned(),
        };
        let text = format!(
            "{} may not ask {provider}/{model:.128}: {names}",
            self.asker.capsule
        );
        Err(Box::new(Problem::new(ErrorCode::ModelNotAllowed, text)))
    }

    /// The operator's: the same for all tenants.
    async fn key(&self, provider: &Provider) -> Result<Option<SecretValue>, Box<Problem>> {
        let Some(name) = &provider.key else {
            return Ok(None);
        };
        match self.models.secrets.get(&Tenant::default(), name).await {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                // Where the operator keeps it is not the capsule's business.
                warn!(run = %self.asker.run, error = %chain(&error), "the key of a provider cannot be had");
                let text = format!("the operator of this node keeps no {name} that can be used");
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
        let reserved = self
            .models
            .accounts
            .handle(&self.asker.tenant, self.asker.run.root(), &command)
            .await;
        reserved.map_err(|error| Box::new(refusal::of_spending(&model, &error)))
    }
}

/// A token is a byte at the least, so that a request has no more of them than bytes.
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
        Ok((body, _room)) => {
            let place = (provider.as_str(), path.as_str());
            access.call(place, uri.query(), &headers, body).await
        }
        Err(refused) => Err(refused),
    };
    match called {
        Ok(response) => response,
        Err(refused) => {
            let target = format!("{provider:.80}/{path:.200}");
            // Before the answer: who is refused without end waits for each to be told.
            access.refusals.tell(&target, &refused).await;
            let mut response = problem(&refused);
            // More of the same would be refused too.
            response.headers_mut().remove(header::RETRY_AFTER);
            mark(&mut response, "platform");
            response
        }
    }
}
