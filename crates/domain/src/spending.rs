//! What a tree of runs spends on models: calls reserve their worst case before they are made and settle
//! afterwards, so that no budget is exceeded however many of them run at once.
//!
//! The events of a tree are one chain, and one guard covers them: whoever reserves has read all
//! that was reserved before.

mod cost;
mod price;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

pub use self::cost::Cost;
pub use self::price::{Price, Prices};
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::{EventId, RunId};
use crate::subject::{self, Subject};
use crate::tenant::Tenant;

/// What may be spent; what is none has no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Tokens of all requests and answers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// As the operator calls it: `openai`.
    pub provider: String,
    /// As the capsule asked for it.
    pub model: String,
}

/// The most that a call may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worst {
    pub tokens: u64,
    /// None for a model without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Of the request, those from the provider's cache included.
    pub input: u64,
    /// Of `input`, those that the provider had in its cache.
    #[serde(default)]
    pub cached_input: u64,
    /// Of the answer, what the model thought included.
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
    /// The whole answer was passed on.
    Whole,
    /// The provider refused, or failed before it began to answer: it charges nothing.
    Refused,
    /// The answer broke off, or nobody read it to its end.
    Broken,
}

/// What was said in a call, where the operator of its node has it kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The body of the request as it was sent; none if it could not be stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Kept>,
    /// The body of the answer as it came, of a stream all its events; none if there was none, or it could
    /// not be stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Kept>,
}

/// A body in the artifact store, without the values of secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub digest: Digest,
    pub size_bytes: u64,
    /// What is not in it, because there was too much.
    pub dropped_bytes: u64,
}

/// What happens to the money of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// A call is about to be made.
    #[serde(rename = "dev.aod.spending.reserved.v1")]
    Reserved {
        #[serde(flatten)]
        call: ModelCall,
        worst: Worst,
    },
    /// A call is over; what it had reserved and did not take is free again.
    #[serde(rename = "dev.aod.spending.settled.v1")]
    Settled(Box<Settled>),
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    #[serde(flatten)]
    pub call: ModelCall,
    pub answered: Answered,
    /// The HTTP status; none if the provider was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// None if the answer did not tell: then what was reserved counts as taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// What it counts as; none for a model without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The names of the tools that the model asked for, in order, at most [`TOOLS_NAMED_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// How many it asked for.
    #[serde(default)]
    pub tool_calls: u32,
    pub is_streamed: bool,
    /// From the request to the first byte of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<u64>,
    pub duration_ms: u64,
    /// None unless the operator asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Contents>,
}

impl Settled {
    /// Whether nobody knows what it took.
    pub fn is_untold(&self) -> bool {
        self.tokens.is_none() && self.answered != Answered::Refused
    }
}

/// Tools that one event names; of more it holds the number. An answer of a model has few.
pub const TOOLS_NAMED_MAX: usize = 64;

/// Characters of the name of a tool, a provider or a model that are kept. Source: providers allow 64
/// for tools, and no model has a longer name.
pub const NAME_LENGTH_MAX: usize = 128;

impl Event {
    pub const fn call(&self) -> &ModelCall {
        match self {
            Self::Reserved { call, .. } => call,
            Self::Settled(settled) => &settled.call,
        }
    }

    /// Where it is stored if the tree is `tenant`'s.
    pub fn subject(&self, tenant: &Tenant) -> Subject {
        let token = match self {
            Self::Reserved { .. } => "reserved",
            Self::Settled(_) => "settled",
        };
        subject::spending_event(tenant, self.call().run, token)
    }
}

/// What was taken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub model_calls: u64,
    pub input_tokens: u64,
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
    /// Tokens of calls whose answers did not tell: their worst case.
    pub untold_tokens: u64,
    pub tool_calls: u64,
    pub cost: Cost,
    /// Calls of models without a price; they are not in `cost`.
    pub unpriced_calls: u64,
}

impl Spent {
    pub fn tokens(&self) -> u64 {
        let told = self.input_tokens.saturating_add(self.output_tokens);
        told.saturating_add(self.untold_tokens)
    }

    /// Of one call, whose answer did not tell of `untold_tokens`.
    pub fn of(settled: &Settled, untold_tokens: u64) -> Self {
        let tokens = settled.tokens.unwrap_or_default();
        let is_unpriced = settled.cost.is_none() && settled.answered != Answered::Refused;
        Self {
            model_calls: 1,
            input_tokens: tokens.input,
            cached_input_tokens: tokens.cached_input,
            output_tokens: tokens.output,
            untold_tokens,
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
        self.untold_tokens = self.untold_tokens.saturating_add(other.untold_tokens);
        self.tool_calls += other.tool_calls;
        self.cost = self.cost + other.cost;
        self.unpriced_calls += other.unpriced_calls;
    }
}

/// Whose budget it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// What the request for the root allows.
    Tree,
    /// What `agent.yaml` allows one run, its callees not counted.
    Run,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Tokens,
    /// In picodollars.
    Cost,
}

/// A call would exceed a budget, if it took all that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceeded {
    pub scope: Scope,
    pub limit: Limit,
    pub allowed: u64,
    pub spent: u64,
    /// By calls that are under way.
    pub reserved: u64,
    pub asked: u64,
}

/// Why a call may not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Exceeded(Exceeded),
    /// A cost is limited and the model has no price.
    Unpriced,
}

/// What somebody wants to happen.
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

/// What a tree has spent and reserved, replayed from its events.
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
    /// Takes an event in; events come in the order of the log.
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
                let untold = worst.filter(|_| settled.is_untold());
                let untold = untold.map_or(0, |worst| worst.tokens);
                let spent = Spent::of(settled, untold);
                self.tree += spent;
                *self.by_run.entry(settled.call.run).or_default() += spent;
            }
        }
    }

    /// What the whole tree has spent.
    pub const fn tree(&self) -> &Spent {
        &self.tree
    }

    /// What `run` alone has spent.
    pub fn of_run(&self, run: RunId) -> Spent {
        self.by_run.get(&run).copied().unwrap_or_default()
    }

    /// All runs that have spent anything.
    pub fn runs(&self) -> impl Iterator<Item = (RunId, &Spent)> {
        self.by_run.iter().map(|(run, spent)| (*run, spent))
    }

    /// What is reserved by calls under way, of `run` alone if one is given.
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

/// The event to store; none when what the command wants is so already.
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
            if settled.is_untold() {
                let reserved = account.open.get(&settled.call.id);
                settled.cost = settled.cost.or(reserved.and_then(|(_, worst)| worst.cost));
            }
            Ok(Some(Event::Settled(settled)))
        }
    }
}
