use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::run::fixtures::{NOW, child, root};

fn id(number: usize) -> EventId {
    EventId::new(Uuid::from_u128(number as u128 + 1))
}

fn call(number: usize, run: RunId) -> ModelCall {
    ModelCall {
        id: id(number),
        run,
        attempt: 1,
        provider: "openai".into(),
        model: "gpt-5.2".into(),
    }
}

fn worst(tokens: u64) -> Worst {
    Worst {
        tokens,
        cost: Some(Cost::from_picodollars(tokens * 10)),
    }
}

fn reserve(number: usize, run: RunId, tokens: u64, tree: Budget, own: Budget) -> Command {
    Command::Reserve {
        call: call(number, run),
        worst: worst(tokens),
        tree,
        own,
    }
}

fn settled(number: usize, run: RunId, tokens: Option<u64>) -> Settled {
    Settled {
        call: call(number, run),
        answered: Answered::Whole,
        status: Some(200),
        tokens: tokens.map(|output| Tokens {
            output,
            ..Tokens::default()
        }),
        cost: tokens.map(|tokens| Cost::from_picodollars(tokens * 10)),
        tools: vec!["search".into()],
        tool_calls: 1,
        is_streamed: false,
        first_byte_ms: Some(3),
        duration_ms: 5,
        contents: None,
    }
}

/// An account and its events.
#[derive(Default)]
struct Log {
    account: Account,
    sequence: u64,
}

impl Log {
    fn handle(&mut self, command: &Command) -> Result<bool, Refusal> {
        let Some(event) = decide(&self.account, command)? else {
            return Ok(false);
        };
        self.sequence += 1;
        self.account.apply(&Recorded {
            sequence: self.sequence,
            hash: Digest::of("event"),
            id: id(1_000),
            time: NOW,
            previous: None,
            event,
        });
        Ok(true)
    }
}

fn tokens(tokens_max: u64) -> Budget {
    Budget {
        tokens_max: Some(tokens_max),
        cost_max: None,
    }
}

#[test]
fn reservation_counts_until_it_is_settled() {
    let mut log = Log::default();
    let none = Budget::default();
    assert_eq!(
        log.handle(&reserve(1, root(), 60, tokens(100), none)),
        Ok(true)
    );
    let refused = log.handle(&reserve(2, child(), 60, tokens(100), none));
    let expected = Exceeded {
        scope: Scope::Tree,
        limit: Limit::Tokens,
        allowed: 100,
        spent: 0,
        reserved: 60,
        asked: 60,
    };
    assert_eq!(refused, Err(Refusal::Exceeded(expected)));
    let end = Command::Settle(Box::new(settled(1, root(), Some(20))));
    assert_eq!(log.handle(&end), Ok(true));
    assert_eq!(
        log.handle(&reserve(2, child(), 60, tokens(100), none)),
        Ok(true)
    );
    assert_eq!(log.account.tree().output_tokens, 20);
    assert_eq!(log.account.reserved(None).tokens, 60);
}

#[test]
fn run_budget_applies_in_addition_to_tree_budget() {
    let mut log = Log::default();
    let none = Budget::default();
    assert_eq!(
        log.handle(&reserve(1, root(), 60, none, tokens(60))),
        Ok(true)
    );
    let refused = log.handle(&reserve(2, root(), 1, none, tokens(60)));
    let Err(Refusal::Exceeded(exceeded)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((exceeded.scope, exceeded.reserved), (Scope::Run, 60));
    assert_eq!(
        log.handle(&reserve(3, child(), 60, none, tokens(60))),
        Ok(true)
    );
}

#[test]
fn answer_without_usage_counts_as_its_reservation() {
    let mut log = Log::default();
    let none = Budget::default();
    log.handle(&reserve(1, root(), 60, tokens(100), none))
        .unwrap();
    let mut end = settled(1, root(), None);
    end.answered = Answered::Broken;
    log.handle(&Command::Settle(Box::new(end))).unwrap();
    assert_eq!(log.account.tree().tokens(), 60);
    assert_eq!(Some(log.account.tree().cost), worst(60).cost);
}

#[test]
fn call_rejected_by_the_provider_costs_nothing() {
    let mut log = Log::default();
    log.handle(&reserve(1, root(), 60, tokens(100), Budget::default()))
        .unwrap();
    let mut end = settled(1, root(), None);
    end.answered = Answered::Refused;
    log.handle(&Command::Settle(Box::new(end))).unwrap();
    assert_eq!(log.account.tree().tokens(), 0);
    assert_eq!(log.account.reserved(None).tokens, 0);
}

#[test]
fn a_call_is_settled_once() {
    let mut log = Log::default();
    let end = Command::Settle(Box::new(settled(1, root(), Some(20))));
    assert_eq!(log.handle(&end), Ok(true));
    assert_eq!(log.handle(&end), Ok(false));
    assert_eq!(log.account.of_run(root()).model_calls, 1);
}

#[test]
fn unpriced_model_is_refused_under_a_cost_limit() {
    let command = Command::Reserve {
        call: call(1, root()),
        worst: Worst {
            tokens: 10,
            cost: None,
        },
        tree: Budget {
            tokens_max: None,
            cost_max: Cost::from_dollars(1.0),
        },
        own: Budget::default(),
    };
    assert_eq!(Log::default().handle(&command), Err(Refusal::Unpriced));
}

#[test]
fn a_price_is_for_a_million_tokens() {
    let prices = Prices::default();
    let price = prices.get("openai", "gpt-4.1-mini-2025-04-14");
    let price = price.expect("a dated version of a listed model");
    assert!(prices.get("openai", "gpt-4.1-mini-nova").is_none());
    assert!(prices.get("anthropic", "claude-opus-4-6").is_some());
    let tokens = Tokens {
        input: 1_000_000,
        cached_input: 500_000,
        output: 10,
    };
    // Half a million at $0.40, half a million at $0.10, ten at $1.60 a million.
    assert_eq!(price.cost(tokens).picodollars(), 250_016_000_000);
    assert!(price.cost(tokens) <= price.worst(1_000_000, 10).cost.unwrap());
}

#[test]
fn all_listed_prices_are_proper() {
    let listed: BTreeMap<String, Price> =
        serde_json::from_str(include_str!("prices.json")).expect("the list of prices");
    for (model, price) in listed {
        assert!(price.is_proper(), "{model}: {price:?}");
        assert!(model.contains('/'), "{model}");
    }
}

#[test]
fn costs_are_shown_to_their_first_digits() {
    for (picodollars, text) in [
        (0, "$0.0000"),
        (1_250_000_000_000, "$1.2500"),
        (12_500_000_000, "$0.0125"),
        (1_600_000, "$0.0000016"),
    ] {
        assert_eq!(Cost::from_picodollars(picodollars).to_string(), text);
    }
}

proptest! {
    /// 64 runs below one budget, with calls that reserve and settle in any order: usage and reservations never exceed
    /// the budget.
    #[test]
    fn no_order_of_calls_exceeds_a_budget(
        steps in vec((0usize..64, 1u64..500, 0u64..=100, any::<bool>()), 1..400),
        allowed in 1u64..20_000,
    ) {
        let mut log = Log::default();
        let tree = Budget {
            tokens_max: Some(allowed),
            cost_max: Some(Cost::from_picodollars(allowed * 10)),
        };
        let mut open: Vec<Option<(usize, u64)>> = vec![None; 64];
        for (number, (index, asked, percent, is_told)) in steps.into_iter().enumerate() {
            let run = root().child(&Digest::of(index.to_string()));
            match open[index].take() {
                None => {
                    let reserved = log.handle(&reserve(number, run, asked, tree, Budget::default()));
                    if reserved.is_ok() {
                        open[index] = Some((number, asked));
                    }
                }
                Some((number, asked)) => {
                    let taken = is_told.then_some(asked * percent / 100);
                    let end = settled(number, run, taken);
                    log.handle(&Command::Settle(Box::new(end))).unwrap();
                }
            }
            let (spent, reserved) = (log.account.tree(), log.account.reserved(None));
            prop_assert!(spent.tokens() + reserved.tokens <= allowed);
            let cost = spent.cost + reserved.cost.unwrap_or_default();
            prop_assert!(cost.picodollars() <= allowed * 10);
        }
    }
}
