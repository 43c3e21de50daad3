//! The proxy's refusals: their messages, and the error formats of the providers.

use aod_api::problem::{Problem, ProblemItem};
use aod_domain::error_code::ErrorCode;
use aod_domain::spending::{Cost, Exceeded, Limit, Refusal, Scope};
use aod_services::spending::SpendingError;
use serde_json::{Map, Value, json};

use super::settings::Format;
use aod_services::error::chain;

/// Members of an error of `format` beside those of the problem: clients of providers print only these.
///
/// Sources: the API references of OpenAI, Anthropic ("Errors") and Google (`google.rpc.Status`).
pub(super) fn members(format: Format, problem: &Problem) -> Map<String, Value> {
    let (status, message) = (
        problem.status,
        format!("{}: {}", problem.code, problem.detail),
    );
    let members = match format {
        Format::OpenAi => {
            let kind = match status {
                401 => "authentication_error",
                403 => "permission_error",
                429 => "insufficient_quota",
                500.. => "server_error",
                _ => "invalid_request_error",
            };
            json!({"error": {"message": message, "type": kind, "param": null, "code": problem.code}})
        }
        Format::Anthropic => {
            let kind = match status {
                401 => "authentication_error",
                403 => "permission_error",
                404 => "not_found_error",
                413 => "request_too_large",
                429 => "rate_limit_error",
                500.. => "api_error",
                _ => "invalid_request_error",
            };
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
        Format::Google => {
            let name = match status {
                401 => "UNAUTHENTICATED",
                403 => "PERMISSION_DENIED",
                404 => "NOT_FOUND",
                429 => "RESOURCE_EXHAUSTED",
                502..=504 => "UNAVAILABLE",
                500.. => "INTERNAL",
                _ => "INVALID_ARGUMENT",
            };
            json!({"error": {"code": status, "message": message, "status": name}})
        }
    };
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// The refusal of a call of `model` that was not reserved.
pub(super) fn of_spending(model: &str, error: &SpendingError) -> Problem {
    match error {
        SpendingError::Rejected { rejection, .. } => match rejection {
            Refusal::Exceeded(exceeded) => exhausted(model, *exceeded),
            Refusal::Unpriced => unpriced(model),
        },
        error => Problem::new(
            ErrorCode::BrokerUnavailable,
            format!("cannot reserve the cost of {model}: {}", chain(error)),
        ),
    }
}

/// The refusal of a model without a price under a limited cost.
pub(super) fn unpriced(model: &str) -> Problem {
    let text = format!(
        "{model} has no price, and a budget limits the cost; the operator can set a price in the file of --models"
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
        Scope::Run => "the budget that agent.yaml sets for one run",
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
        "the request to {model} can use up to {}, which exceeds the rest of {whose}: {} of {} spent, {} reserved by requests in progress",
        shown(asked),
        shown(spent),
        shown(allowed),
        shown(reserved),
    );
    Problem::new(ErrorCode::BudgetExhausted, text).with_errors(items.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_has_the_error_format_of_its_provider() {
        let missing = Problem::new(ErrorCode::ModelKeyMissing, "no key");
        let message = "model_key_missing: no key";
        let check = |format, expected: Value| {
            assert_eq!(Value::Object(members(format, &missing)), expected);
        };
        let error = json!({"message": message, "type": "server_error", "param": null, "code": "model_key_missing"});
        check(Format::OpenAi, json!({ "error": error }));
        let error = json!({"type": "api_error", "message": message});
        check(Format::Anthropic, json!({"type": "error", "error": error}));
        let error = json!({"code": 503, "message": message, "status": "UNAVAILABLE"});
        check(Format::Google, json!({ "error": error }));
    }
}
