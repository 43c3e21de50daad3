use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::capsule::Handoffs;
use crate::error_code::{ErrorCode, ErrorSource};
use crate::run::fixtures::{ended, error, launched, launched_child, node_holder, root, run_of};
use crate::run::{CancelRequested, Ended, Event, Lease, Outcome, Run, Work};

fn signature(target: &str, arguments: &Value) -> Digest {
    let target = target.parse().unwrap();
    Call {
        target: &target,
        arguments,
        files: &BTreeMap::new(),
    }
    .signature()
}

#[test]
fn order_of_arguments_does_not_change_the_signature() {
    let one = signature("b", &json!({"x": 1, "y": 2}));
    let other = serde_json::from_str(r#"{"y": 2, "x": 1}"#).unwrap();
    assert_eq!(one, signature("b", &other));
    assert_ne!(one, signature("c", &json!({"x": 1, "y": 2})));
}

fn lineage_of(signatures: impl IntoIterator<Item = Digest>) -> Lineage {
    Lineage {
        signatures: signatures.into_iter().collect(),
    }
}

#[test]
fn same_call_further_up_is_a_cycle() {
    let target: CapsuleName = "a".parse().unwrap();
    let above = lineage_of([signature("a", &json!({})), signature("b", &json!({}))]);
    let cycle = Refusal::Cycle {
        target: target.clone(),
    };
    assert_eq!(
        above.descend(&target, signature("a", &json!({}))),
        Err(cycle)
    );
    let other = above.descend(&target, signature("a", &json!({"n": 1})));
    assert_eq!(other.unwrap().depth(), 2);
}

#[test]
fn nesting_ends_at_the_maximum_depth() {
    let target: CapsuleName = "a".parse().unwrap();
    let mut lineage = lineage_of([signature("a", &json!(0))]);
    for depth in 1..=DEPTH_MAX {
        lineage = lineage
            .descend(&target, signature("a", &json!(depth)))
            .unwrap();
        assert_eq!(lineage.depth(), depth);
    }
    let deeper = lineage.descend(&target, signature("a", &json!("more")));
    assert_eq!(deeper, Err(Refusal::TooDeep));
}

proptest! {
    #[test]
    fn keys_of_occurrences_and_renewals_differ(key: [u8; 4], one: u32, other: u32) {
        let key = Digest::of(key);
        prop_assert_eq!(one == other, derived_key(&key, one) == derived_key(&key, other));
        prop_assert_eq!(one == other, renewed_key(key, one) == renewed_key(key, other));
        prop_assert_eq!(renewed_key(key, 0), key);
    }
}

/// The lease of attempt 1, whose node drew a token.
fn leased() -> Event {
    Event::Leased(Lease {
        attempt: 1,
        holder: node_holder(1, 1),
    })
}

/// A root whose capsule may make the calls of `handoffs`, with further events.
fn caller(handoffs: Handoffs, events: &[Event]) -> Run {
    let mut launched = launched();
    if let Work::Capsule { handoffs: own, .. } = &mut launched.work {
        *own = handoffs;
    }
    let first = Event::Launched(Box::new(launched));
    run_of([&[first], events].concat())
}

/// Aliases of capsules are resolved: `graph` is the title of `chart`.
fn resolve(text: &str) -> Option<CapsuleName> {
    match text {
        "graph" | "chart" => "chart".parse().ok(),
        "report" => "report".parse().ok(),
        _ => None,
    }
}

/// The only caller of the rule under test.
fn check_call(caller: &Run, target: &str, tree_runs: u64, expected: &Result<(), Refusal>) {
    let target = target.parse().unwrap();
    assert_eq!(check(caller, &target, tree_runs, resolve), *expected);
}

fn listed(names: &[&str]) -> Handoffs {
    Handoffs::Listed(names.iter().map(|&name| name.into()).collect())
}

#[test]
fn caller_calls_what_its_tools_list_by_any_name() {
    for handoffs in [
        Handoffs::Open,
        listed(&["chart"]),
        listed(&["nobody", "graph"]),
    ] {
        check_call(&caller(handoffs, &[]), "chart", 1, &Ok(()));
    }
}

#[test]
fn call_of_an_unlisted_capsule_is_refused_with_the_list() {
    for (names, text) in [(&["chart"][..], "lists chart"), (&[], "lists no capsules")] {
        let refusal = Refusal::NotListed {
            caller: "survey".parse().unwrap(),
            target: "report".parse().unwrap(),
            listed: names.iter().map(|&name| name.to_owned()).collect(),
        };
        assert_eq!(refusal.code(), ErrorCode::TargetNotAllowed);
        assert!(refusal.to_string().contains(text), "{refusal}");
        check_call(&caller(listed(names), &[]), "report", 1, &Err(refusal));
    }
}

#[test]
fn build_calls_nothing() {
    let mut launched = launched();
    launched.work = Work::Build {
        name: "survey".parse().unwrap(),
        content: Digest::of("content"),
        updates_bases: false,
    };
    let build = run_of([Event::Launched(Box::new(launched))]);
    assert_eq!(*handoffs(&build), listed(&[]));
}

#[test]
fn cancelled_caller_calls_nothing() {
    let cancel = CancelRequested {
        requested_by: "ada".into(),
        reason: "enough".into(),
    };
    let cancelled = caller(Handoffs::Open, &[Event::CancelRequested(cancel)]);
    let refusal = Refusal::CallerCancelled {
        caller: root(),
        requested_by: "ada".into(),
    };
    assert_eq!(refusal.code(), ErrorCode::Cancelled);
    check_call(&cancelled, "chart", 1, &Err(refusal));
    assert!(check_not_cancelled(&caller(Handoffs::Open, &[])).is_ok());
}

#[test]
fn deepest_caller_calls_nothing() {
    let mut launched = launched();
    if let Work::Capsule { handoffs, .. } = &mut launched.work {
        *handoffs = Handoffs::Open;
    }
    let of_depth = |depth: u32| {
        let mut launched = launched.clone();
        launched.lineage = lineage_of((0..=depth).map(|n| Digest::of(n.to_string())));
        run_of([Event::Launched(Box::new(launched))])
    };
    check_call(&of_depth(DEPTH_MAX - 1), "chart", 1, &Ok(()));
    check_call(&of_depth(DEPTH_MAX), "chart", 1, &Err(Refusal::TooDeep));
    assert_eq!(Refusal::TooDeep.code(), ErrorCode::CallTooDeep);
}

#[test]
fn full_tree_takes_no_further_call() {
    let caller = caller(Handoffs::Open, &[]);
    check_call(&caller, "chart", TREE_RUNS_MAX - 1, &Ok(()));
    let refusal = Refusal::TreeFull { root: root() };
    assert_eq!(refusal.code(), ErrorCode::TooManyCalls);
    check_call(&caller, "chart", TREE_RUNS_MAX, &Err(refusal));
}

#[test]
fn token_speaks_for_the_attempt_whose_node_drew_it() {
    let run = caller(Handoffs::Open, &[leased()]);
    let drawn = match &run.lease().unwrap().event.holder {
        crate::run::Holder::Node { token_sha256, .. } => *token_sha256,
        other @ crate::run::Holder::Gateway { .. } => panic!("{other:?} is no node"),
    };
    assert!(speaks_for(&run, 1, &drawn));
    assert!(!speaks_for(&run, 2, &drawn));
    assert!(!speaks_for(&run, 1, &Digest::of("another token")));
    assert!(!speaks_for(&caller(Handoffs::Open, &[]), 1, &drawn));
}

/// A callee that attempt 1 of its caller started.
fn callee(end: Option<Ended>) -> Run {
    let first = Event::Launched(Box::new(launched_child()));
    let end = end.map(|ended| Event::Ended(Box::new(ended)));
    let lease = end.is_some().then(leased);
    run_of([first].into_iter().chain(lease).chain(end))
}

fn failed(source: ErrorSource) -> Ended {
    let mut error = error(ErrorCode::CapsuleExit);
    error.source = source;
    Ended {
        outcome: Outcome::Failed,
        error: Some(error),
        ..ended(1)
    }
}

#[test]
fn callee_that_has_not_ended_is_joined_by_every_attempt() {
    for attempt in 1..4 {
        assert_eq!(found(&callee(None), attempt), Found::Joined);
    }
}

#[test]
fn results_that_are_final_are_joined_and_others_renewed_by_later_attempts() {
    let of_outcome = |outcome| Ended {
        outcome,
        ..failed(ErrorSource::Capsule)
    };
    let cases = [
        (ended(1), Found::Joined),
        (failed(ErrorSource::Capsule), Found::Joined),
        (failed(ErrorSource::Platform), Found::Renewed),
        (failed(ErrorSource::Caller), Found::Renewed),
        (of_outcome(Outcome::TimedOut), Found::Renewed),
        (of_outcome(Outcome::Cancelled), Found::Renewed),
    ];
    for (end, expected) in cases {
        let outcome = end.outcome;
        let callee = callee(Some(end));
        assert_eq!(found(&callee, 2), expected, "{outcome:?}");
        assert_eq!(found(&callee, 1), Found::Joined, "{outcome:?}");
    }
}

#[test]
fn failure_without_an_error_is_renewed() {
    let nothing_known = Ended {
        error: None,
        ..failed(ErrorSource::Capsule)
    };
    assert!(!is_final(&nothing_known));
}
