//! Rules of flow control.

use aod_api::rules::{RuleView, SetRule};
use comfy_table::CellAlignment;

use super::table::{finish, nothing, plain};

/// The rules that there are.
pub(crate) fn table(rules: &[RuleView]) -> String {
    if rules.is_empty() {
        return nothing("rules");
    }
    let mut table = plain(&["RULE", "FOR", "KEY", "LIMIT", "GOING", "WAITING"]);
    for rule in rules {
        table.add_row([
            rule.name.clone(),
            whom(&rule.rule),
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

/// A rule in words.
pub(crate) fn sentence(view: &RuleView) -> String {
    let rule = &view.rule;
    let whom = whom(rule);
    let key = match rule.key.as_slice() {
        [] => String::new(),
        parts => format!(", by {}", parts.join(" and ")),
    };
    format!("rule {} for {whom}{key}: {}", view.name, limit(rule))
}

/// What it is for.
fn whom(rule: &SetRule) -> String {
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
        Some(0) => parts.push("none begins".to_owned()),
        Some(runs) => parts.push(format!("{runs} at once")),
        None => (),
    }
    if let Some(rate) = rule.rate {
        parts.push(format!("{} within {} s", rate.runs, rate.seconds));
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
        return "in order".to_owned();
    }
    parts.join(", ")
}
