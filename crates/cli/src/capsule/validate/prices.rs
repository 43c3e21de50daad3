//! Whether what a capsule limits can be counted: a cost needs prices.

use aod_domain::spending::Prices;

use super::super::source::Source;
use super::relations::place_of_word;
use super::{Finding, Severity};

/// The key whose limit cannot be held without prices.
const LIMIT: &str = "max_cost_usd";

/// The models of `sources` that have no price while their cost is limited.
pub(crate) fn unpriced(sources: &[Source], prices: &Prices) -> Vec<Finding> {
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

/// A name alone is of whichever provider has it. What a script says costs nothing.
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
    Finding {
        severity: Severity::Error,
        file: source.directory.join("agent.yaml").display().to_string(),
        line: place.line,
        column: place.column,
        message: format!(
            "{model} has no price, so {LIMIT} cannot be held; expected a model with a price, or the operator's \
             prices with --models FILE"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use aod_domain::spending::Price;

    use super::*;

    fn found(agent: &str, prices: &Prices) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        write("Dockerfile", "FROM scratch\nCMD [\"/x\"]");
        write("schema.json", "{\"input\": {}, \"output\": {}}");
        write("agent.yaml", &format!("name: x\n{agent}"));
        let source = Source::read(directory.path()).unwrap();
        let shown = |finding: Finding| {
            let words = finding.message.split(" has").next().unwrap_or_default();
            format!("{}:{} {words}", finding.line, finding.column)
        };
        unpriced(&[source], prices).into_iter().map(shown).collect()
    }

    #[test]
    fn a_limited_cost_needs_a_price_of_each_model() {
        let agent = "model: ours/llama\nfallback: [openai/gpt-5.2, script/x.yaml, gpt-5.2]\n";
        let limited = format!("{agent}limits: {{max_cost_usd: 1}}\n");
        let listed = Prices::default();
        assert_eq!(found(agent, &listed), [""; 0]);
        assert_eq!(found(&limited, &listed), ["4:10 ours/llama"]);
        let price = Price {
            input: 1.0,
            cached_input: None,
            output: 1.0,
        };
        let own = listed.with(BTreeMap::from([("ours/llama".to_owned(), price)]));
        assert_eq!(found(&limited, &own), [""; 0]);
    }
}
