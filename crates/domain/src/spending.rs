//! The spending of a tree on models: calls reserve their maximum cost in advance and settle afterwards, so that
//! concurrent calls never exceed a budget.
//!
//! The spending events of a tree form one chain under one guard: a writer that reserves has read all earlier
//! reservations.

mod cost;
mod price;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

pub use self::cost::Cost;
pub use self::price::{Price, Prices};
use crate::chain::Chain;
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::{EventId, RunId};
use crate::subject::{self, Subject};
use crate::tenant::Tenant;

/// The maximum spending; a missing value is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Tokens of all requests and answers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_max: Option<u64>,
    #[serde(
        rename = "cost_picodollars_max",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub cost_max: Option<Cost>,
}

impl Budget {
    /// Whether there is no limit at all.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A call of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    pub id: EventId,
    pub run: RunId,
    pub attempt: u32,
    /// The operator's name of the provider: `openai`.
    pub provider: String,
    /// As the capsule requested it.
    pub model: String,
}

/// The maximum usage of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worst {
    pub tokens: u64,
    /// None for a model without a price.
    #[serde(
        rename = "cost_picodollars",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub cost: Option<Cost>,
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Of the request, including those from the provider's cache.
    pub input: u64,
    /// The part of `input` from the provider's cache.
    #[serde(default)]
    pub cached_input: u64,
    /// Of the answer, including the model's thinking.
    pub output: u64,
}

impl Tokens {
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// The node passed on the whole answer.
    Whole,
    /// The provider rejected the request, or failed before it answered: it charges nothing.
    Refused,
    /// The answer was incomplete, or the capsule did not read it to its end.
    Broken,
}

/// The contents of a call, if the operator of its node stores them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The body of the request as sent; none if it could not be stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Kept>,
    /// The body of the answer as received, of a stream all its events; none without an answer, or if it could not be
    /// stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Kept>,
}

/// A body in the artifact store, without the values of secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub digest: Digest,
    pub size_bytes: u64,
    /// Bytes beyond the maximum size, which are not in it.
    pub dropped_bytes: u64,
}

/// A spending event of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// A call is about to start.
    #[serde(rename = "dev.aod.spending.reserved.v1")]
    Reserved {
        #[serde(flatten)]
        call: ModelCall,
        worst: Worst,
    },
    /// A call is over; the unused part of its reservation is free again.
    #[serde(rename = "dev.aod.spending.settled.v1")]
    Settled(Box<Settled>),
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    #[serde(flatten)]
    pub call: ModelCall,
    pub answered: Answered,
    /// The HTTP status; none if the provider was unreachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// None if the answer did not report it: then the reservation counts as used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// The cost that counts; none for a model without a price.
    #[serde(
        rename = "cost_picodollars",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub cost: Option<Cost>,
    /// The names of the tools that the model requested, in order, at most [`TOOLS_NAMED_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Number of requested tools.
    #[serde(default)]
    pub tool_calls: u32,
    pub is_streamed: bool,
    /// From the request to the first byte of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<u64>,
    pub duration_ms: u64,
    /// None unless the operator enables it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Contents>,
}

impl Settled {
    /// Whether the usage of the call is unknown.
    pub fn is_unreported(&self) -> bool {
        self.tokens.is_none() && self.answered != Answered::Refused
    }
}

/// Maximum tools that one event names; the rest is counted. An answer of a model requests few.
pub const TOOLS_NAMED_MAX: usize = 64;

/// Maximum characters of the name of a tool, a provider or a model. Source: providers allow 64 for tools, and no model
/// has a longer name.
pub const NAME_LENGTH_MAX: usize = 128;

impl Event {
    pub const fn call(&self) -> &ModelCall {
        match self {
            Self::Reserved { call, .. } => call,
            Self::Settled(settled) => &settled.call,
        }
    }

    /// The subject of the event if the tree belongs to `tenant`.
    pub fn subject(&self, tenant: &Tenant) -> Subject {
        let token = match self {
            Self::Reserved { .. } => "reserved",
            Self::Settled(_) => "settled",
        };
        subject::spending_event(tenant, self.call().run, token)
    }
}

/// The spending so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub model_calls: u64,
    pub input_tokens: u64,
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
    /// Reserved tokens of calls whose answers did not report their usage.
    pub unreported_tokens: u64,
    pub tool_calls: u64,
    #[serde(rename = "cost_picodollars")]
    pub cost: Cost,
    /// Calls of models without a price, which are not part of `cost`.
    pub unpriced_calls: u64,
}

impl Spent {
    pub fn tokens(&self) -> u64 {
        let reported = self.input_tokens.saturating_add(self.output_tokens);
        reported.saturating_add(self.unreported_tokens)
    }

    /// The spending of one call, whose answer did not report `unreported_tokens`.
    pub fn of(settled: &Settled, unreported_tokens: u64) -> Self {
        let tokens = settled.tokens.unwrap_or_default();
        let is_unpriced = settled.cost.is_none() && settled.answered != Answered::Refused;
        Self {
            model_calls: 1,
            input_tokens: tokens.input,
            cached_input_tokens: tokens.cached_input,
            output_tokens: tokens.output,
            unreported_tokens,
            tool_calls: settled.tool_calls.into(),
            cost: settled.cost.unwrap_or_default(),
            unpriced_calls: is_unpriced.into(),
        }
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.model_calls += other.model_calls;
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_input_tokens = self
            .cached_input_tokens
            .saturating_add(other.cached_input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.unreported_tokens = self
            .unreported_tokens
            .saturating_add(other.unreported_tokens);
        self.tool_calls += other.tool_calls;
        self.cost = self.cost + other.cost;
        self.unpriced_calls += other.unpriced_calls;
    }
}

/// The scope of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The whole tree: the request for the root sets it.
    Tree,
    /// One run without its callees: `agent.yaml` sets it.
    Run,
}

/// The limited quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Tokens,
    /// In picodollars.
    Cost,
}

/// The maximum usage of a call would exceed a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceeded {
    pub scope: Scope,
    pub limit: Limit,
    pub allowed: u64,
    pub spent: u64,
    /// By calls in progress.
    pub reserved: u64,
    pub asked: u64,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the call exceeds a budget")]
    Exceeded(Exceeded),
    /// A cost limit applies, but the model has no price.
    #[error("the model has no price")]
    Unpriced,
}

/// A spending command.
#[derive(Clone, Debug)]
pub enum Command {
    Reserve {
        call: ModelCall,
        worst: Worst,
        /// Of the tree.
        tree: Budget,
        /// Of the run alone.
        own: Budget,
    },
    Settle(Box<Settled>),
}

/// The spending and the reservations of a tree, replayed from its events.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Sequence and hash of the last event.
    pub last: Option<(u64, Digest)>,
    open: BTreeMap<EventId, (RunId, Worst)>,
    settled: BTreeSet<EventId>,
    by_run: BTreeMap<RunId, Spent>,
    tree: Spent,
}

impl Account {
    /// Applies an event, in the order of the log.
    pub fn apply(&mut self, recorded: &Recorded<Event>) {
        self.last = Some((recorded.sequence, recorded.hash));
        match &recorded.event {
            Event::Reserved { call, worst } => {
                self.open.insert(call.id, (call.run, *worst));
            }
            Event::Settled(settled) => {
                if !self.settled.insert(settled.call.id) {
                    return;
                }
                let worst = self.open.remove(&settled.call.id).map(|(_, worst)| worst);
                let unreported = worst.filter(|_| settled.is_unreported());
                let unreported = unreported.map_or(0, |worst| worst.tokens);
                let spent = Spent::of(settled, unreported);
                self.tree += spent;
                *self.by_run.entry(settled.call.run).or_default() += spent;
            }
        }
    }

    /// The spending of the whole tree.
    pub const fn tree(&self) -> &Spent {
        &self.tree
    }

    /// The spending of `run` alone.
    pub fn of_run(&self, run: RunId) -> Spent {
        self.by_run.get(&run).copied().unwrap_or_default()
    }

    /// All runs with spending.
    pub fn runs(&self) -> impl Iterator<Item = (RunId, &Spent)> {
        self.by_run.iter().map(|(run, spent)| (*run, spent))
    }

    /// The reservations of calls in progress, of `run` alone if one is given.
    pub fn reserved(&self, run: Option<RunId>) -> Worst {
        let open = self.open.values();
        let counted = open.filter(|(of, _)| run.is_none_or(|run| run == *of));
        counted.fold(Worst::default(), |sum, (_, worst)| Worst {
            tokens: sum.tokens.saturating_add(worst.tokens),
            cost: Some(sum.cost.unwrap_or_default() + worst.cost.unwrap_or_default()),
        })
    }

    fn check(&self, scope: Scope, run: RunId, worst: Worst, budget: Budget) -> Result<(), Refusal> {
        let (spent, reserved) = match scope {
            Scope::Tree => (self.tree, self.reserved(None)),
            Scope::Run => (self.of_run(run), self.reserved(Some(run))),
        };
        if let Some(allowed) = budget.tokens_max {
            let figures = (allowed, spent.tokens(), reserved.tokens, worst.tokens);
            within(scope, Limit::Tokens, figures)?;
        }
        if let Some(allowed) = budget.cost_max {
            let cost = worst.cost.ok_or(Refusal::Unpriced)?;
            let reserved = reserved.cost.unwrap_or_default();
            let figures = [allowed, spent.cost, reserved, cost].map(Cost::picodollars);
            within(scope, Limit::Cost, figures.into())?;
        }
        Ok(())
    }
}

fn within(
    scope: Scope,
    limit: Limit,
    (allowed, spent, reserved, asked): (u64, u64, u64, u64),
) -> Result<(), Refusal> {
    let sum = spent.saturating_add(reserved).saturating_add(asked);
    if sum <= allowed {
        return Ok(());
    }
    Err(Refusal::Exceeded(Exceeded {
        scope,
        limit,
        allowed,
        spent,
        reserved,
        asked,
    }))
}

/// The spending events of one tree.
#[derive(Clone, Debug)]
pub struct AccountChain {
    pub tenant: Tenant,
    pub root: RunId,
    pub account: Account,
}

impl AccountChain {
    /// The tree of `root` without any event.
    pub fn new(tenant: Tenant, root: RunId) -> Self {
        Self {
            tenant,
            root,
            account: Account::default(),
        }
    }
}

impl Chain for AccountChain {
    type Event = Event;
    type Broken = Infallible;

    /// A run has at most 256 calls in progress, and each of them reserves and settles.
    const DECISIONS_MAX: u32 = 1_000;

    fn name(&self) -> String {
        format!("the spending of {}", self.root)
    }

    fn filter(&self) -> String {
        subject::spending(self.root)
    }

    fn subject(&self, event: &Event) -> Subject {
        event.subject(&self.tenant)
    }

    fn about(&self, event: &Event) -> String {
        event.call().run.to_string()
    }

    fn last(&self) -> Option<(u64, Digest)> {
        self.account.last
    }

    fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), Infallible> {
        self.account.apply(&recorded);
        Ok(())
    }
}

/// The event to store; none if the state is already as the command wants.
pub fn decide(account: &Account, command: &Command) -> Result<Option<Event>, Refusal> {
    match command {
        Command::Reserve {
            call,
            worst,
            tree,
            own,
        } => {
            if account.open.contains_key(&call.id) {
                return Ok(None);
            }
            account.check(Scope::Run, call.run, *worst, *own)?;
            account.check(Scope::Tree, call.run, *worst, *tree)?;
            Ok(Some(Event::Reserved {
                call: call.clone(),
                worst: *worst,
            }))
        }
        Command::Settle(settled) if account.settled.contains(&settled.call.id) => Ok(None),
        Command::Settle(settled) => {
            let mut settled = settled.clone();
            if settled.is_unreported() {
                let reserved = account.open.get(&settled.call.id);
                settled.cost = settled.cost.or(reserved.and_then(|(_, worst)| worst.cost));
            }
            Ok(Some(Event::Settled(settled)))
        }
    }
}
