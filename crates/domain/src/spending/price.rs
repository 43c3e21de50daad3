//! Prices of models: the list in `prices.json`, and the operator's own prices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cost::Cost;
use super::{Tokens, Worst};

/// Public list prices for plain requests. Source: the price pages of the providers, as of 2026-11.
const LISTED: &str = include_str!("prices.json");

/// Number of tokens that a price in dollars is for.
const PER_TOKENS: f64 = 1e6;

/// The price of a model; each number is US dollars for a million tokens, from 0 to 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input: f64,
    /// Input from the provider's cache; without it, the price of `input` applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<f64>,
    pub output: f64,
}

impl Price {
    /// Whether all numbers are from 0 to 10,000.
    pub fn is_proper(&self) -> bool {
        let all = [Some(self.input), self.cached_input, Some(self.output)];
        all.into_iter()
            .flatten()
            .all(|dollars| (0.0..=10_000.0).contains(&dollars))
    }

    fn of(dollars: f64) -> Cost {
        Cost::from_dollars(dollars / PER_TOKENS).unwrap_or_default()
    }

    /// The cost of `tokens`.
    pub fn cost(&self, tokens: Tokens) -> Cost {
        let cached = tokens.cached_input.min(tokens.input);
        let fresh = tokens.input - cached;
        let cached_price = self.cached_input.unwrap_or(self.input);
        Self::of(self.input).times(fresh)
            + Self::of(cached_price).times(cached)
            + Self::of(self.output).times(tokens.output)
    }

    /// The maximum cost of these tokens: without input from a cache, unless that costs more.
    pub fn worst(&self, input_tokens: u64, output_tokens: u64) -> Worst {
        let input = self.input.max(self.cached_input.unwrap_or_default());
        let cost = Self::of(input).times(input_tokens) + Self::of(self.output).times(output_tokens);
        Worst {
            tokens: input_tokens.saturating_add(output_tokens),
            cost: Some(cost),
        }
    }
}

/// Prices by `provider/model`.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices(BTreeMap<String, Price>);

impl Default for Prices {
    /// The listed prices.
    fn default() -> Self {
        Self(serde_json::from_str(LISTED).expect("a test reads the list"))
    }
}

impl Prices {
    /// These prices, replaced and extended by `own`.
    #[must_use]
    pub fn with(mut self, own: BTreeMap<String, Price>) -> Self {
        self.0.extend(own);
        self
    }

    /// The price of `model`, or of the listed model that it is a dated version of: `gpt-5.2-2025-12-11`.
    pub fn get(&self, provider: &str, model: &str) -> Option<&Price> {
        let exact = |model: &str| self.0.get(&format!("{provider}/{model}"));
        exact(model).or_else(|| exact(undated(model)?))
    }
}

/// `model` without `-20251211`, `-2025-12-11` or `-latest` at its end; none if it has no such suffix.
fn undated(model: &str) -> Option<&str> {
    if let Some(name) = model.strip_suffix("-latest") {
        return Some(name);
    }
    let digits = |text: &str, count: usize| {
        text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let (name, last) = model.rsplit_once('-')?;
    if digits(last, 8) {
        return Some(name);
    }
    let (name, month) = name.rsplit_once('-')?;
    let (name, year) = name.rsplit_once('-')?;
    (digits(year, 4) && digits(month, 2) && digits(last, 2)).then_some(name)
}
