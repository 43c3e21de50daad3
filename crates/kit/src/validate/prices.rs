//! Prices of models whose cost a capsule limits.

use aod_domain::spending::Prices;

use super::relations::place_of_word;
use super::{Finding, Severity};
use crate::source::Source;

/// The limit that requires prices.
const LIMIT: &str = "max_cost_usd";

/// The models of `sources` with a limited cost but without a price.
pub fn unpriced(sources: &[Source], prices: &Prices) -> Vec<Finding> {
    let limited = sources
        .iter()
        .filter_map(|source| Some((source, source.agent.model_grant()?)))
        .filter(|(_, grant)| grant.budget.cost_max.is_some());
    limited
        .flat_map(|(source, grant)| {
            let names = grant.names.into_iter();
            let without = names.filter(|name| !has_price(name, prices));
            without.map(move |name| finding(source, &name))
        })
        .collect()
}

/// A name without a provider matches any provider. A script costs nothing.
fn has_price(name: &str, prices: &Prices) -> bool {
    match name.split_once('/') {
        Some(("script", _)) => true,
        Some((provider, model)) => prices.get(provider, model).is_some(),
        None => ["openai", "anthropic", "google"]
            .iter()
            .any(|provider| prices.get(provider, name).is_some()),
    }
}

fn finding(source: &Source, model: &str) -> Finding {
    let place = place_of_word(source.agent_yaml.as_deref().unwrap_or_default(), LIMIT);
    let message = format!(
        "{model} has no price, so {LIMIT} cannot be enforced; expected a model with a price, or prices in \
         the file of --models"
    );
    Finding::new(
        Severity::Error,
        &source.directory,
        "agent.yaml",
        place,
        message,
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use aod_domain::spending::Price;

    use super::*;
    use crate::source::tests::write;

    fn found(agent: &str, prices: &Prices) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let directory = write(root.path(), "x", agent, "");
        let source = Source::read(&directory).unwrap();
        let shown = |finding: Finding| {
            let words = finding.message.split(" has").next().unwrap_or_default();
            format!("{}:{} {words}", finding.line, finding.column)
        };
        unpriced(&[source], prices).into_iter().map(shown).collect()
    }

    #[test]
    fn limited_cost_requires_a_price_for_each_model() {
        let agent = "model: ours/llama\nfallback: [openai/gpt-5.2, script/x.yaml, gpt-5.2]\n";
        let limited = format!("{agent}limits: {{max_cost_usd: 1}}\n");
        let listed = Prices::default();
        assert_eq!(found(agent, &listed), [""; 0]);
        assert_eq!(found(&limited, &listed), ["3:10 ours/llama"]);
        let price = Price {
            input: 1.0,
            cached_input: None,
            output: 1.0,
        };
        let own = listed.with(BTreeMap::from([("ours/llama".to_owned(), price)]));
        assert_eq!(found(&limited, &own), [""; 0]);
    }
}
