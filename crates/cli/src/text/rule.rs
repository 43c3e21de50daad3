//! Flow-control rules.

use aod_api::rules::{RuleView, SetRule};
use comfy_table::CellAlignment;

use super::table::{finish, nothing, plain};

/// The rules as a table.
pub(crate) fn table(rules: &[RuleView]) -> String {
    if rules.is_empty() {
        return nothing("rules");
    }
    let mut table = plain(&["RULE", "FOR", "KEY", "LIMIT", "ADMITTED", "WAITING"]);
    for rule in rules {
        table.add_row([
            rule.name.clone(),
            scope(&rule.rule),
            rule.rule.key.join(", "),
            limit(&rule.rule),
            rule.going.to_string(),
            rule.waiting.to_string(),
        ]);
    }
    for index in 4..=5 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    finish(&mut table)
}

/// A rule as a sentence.
pub(crate) fn sentence(view: &RuleView) -> String {
    let rule = &view.rule;
    let scope = scope(rule);
    let key = match rule.key.as_slice() {
        [] => String::new(),
        parts => format!(", by key {}", parts.join(", ")),
    };
    format!("rule {} for {scope}{key}: {}", view.name, limit(rule))
}

/// The capsules and tenants of a rule.
fn scope(rule: &SetRule) -> String {
    let capsules = match rule.capsules.as_slice() {
        [] => "all capsules".to_owned(),
        names => names.join(", "),
    };
    match rule.tenants.as_slice() {
        [] => capsules,
        tenants => format!("{capsules} of {}", tenants.join(", ")),
    }
}

fn limit(rule: &SetRule) -> String {
    let mut parts = Vec::new();
    match rule.concurrency {
        Some(0) => parts.push("no runs start".to_owned()),
        Some(runs) => parts.push(format!("{runs} concurrent")),
        None => (),
    }
    if let Some(rate) = rule.rate {
        parts.push(format!("{} starts within {} s", rate.runs, rate.seconds));
    }
    if rule.fair {
        let weights = rule.weights.iter();
        let weights: Vec<String> = weights
            .map(|(key, weight)| format!("{key}={weight}"))
            .collect();
        parts.push(match weights.as_slice() {
            [] => "fair shares".to_owned(),
            weights => format!("fair shares, {}", weights.join(" ")),
        });
    }
    if parts.is_empty() {
        return "in order of priority".to_owned();
    }
    parts.join(", ")
}
