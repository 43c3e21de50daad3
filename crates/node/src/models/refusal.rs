//! Refusals of the proxy, in words.

use aod_api::problem::{Problem, ProblemItem};
use aod_domain::error_code::ErrorCode;
use aod_domain::spending::{Cost, Exceeded, Limit, Refusal, Scope};
use aod_ports::spending::SpendingError;

use crate::calls::chain;

/// Why a call of `model` is not reserved.
pub(super) fn of_spending(model: &str, error: &SpendingError) -> Problem {
    match error {
        SpendingError::Refused(Refusal::Exceeded(exceeded)) => exhausted(model, *exceeded),
        SpendingError::Refused(Refusal::Unpriced) => unpriced(model),
        error => Problem::new(
            ErrorCode::BrokerUnavailable,
            format!("what {model} may cost cannot be reserved: {}", chain(error)),
        ),
    }
}

/// A cost is limited and nobody knows what the model costs.
pub(super) fn unpriced(model: &str) -> Problem {
    let text = format!(
        "{model} has no price, and a cost is limited; its operator can name one in the file of --models"
    );
    Problem::new(ErrorCode::ModelUnpriced, text)
}

fn exhausted(model: &str, exceeded: Exceeded) -> Problem {
    let Exceeded {
        scope,
        limit,
        allowed,
        spent,
        reserved,
        asked,
    } = exceeded;
    let whose = match scope {
        Scope::Tree => "the budget of the whole tree",
        Scope::Run => "what agent.yaml allows one run",
    };
    let shown = |amount: u64| match limit {
        Limit::Tokens => format!("{amount} tokens"),
        Limit::Cost => Cost::from_picodollars(amount).to_string(),
    };
    let figures = [
        ("allowed", allowed),
        ("spent", spent),
        ("reserved", reserved),
        ("asked", asked),
    ];
    let items =
        figures.map(|(name, amount)| ProblemItem::new("", format!("{name} {}", shown(amount))));
    let text = format!(
        "the call of {model} may take {}, which {whose} does not leave: {} of {} are spent, {} reserved by calls under way",
        shown(asked),
        shown(spent),
        shown(allowed),
        shown(reserved),
    );
    Problem::new(ErrorCode::BudgetExhausted, text).with_errors(items.into())
}
