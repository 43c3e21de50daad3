use serde_json::{Value, json};

use super::comparison::Pairing;
use super::*;
use crate::digest::Digest;
use crate::error_code::ErrorCode;
use crate::run::fixtures::{
    ended, error, failed, file, launched, launched_child, node_holder, run_of,
};
use crate::run::{Ended, Event, Launched, Lease, Outcome, Parent, Payload, Retries, Work};

/// A run that was launched as `launched`, and ended as `ended` if given.
fn run(launched: Launched, ended: Option<Ended>) -> Run {
    let mut events = vec![Event::Launched(Box::new(launched))];
    if let Some(ended) = ended {
        events.push(lease());
        events.push(Event::Ended(Box::new(ended)));
    }
    run_of(events)
}

fn lease() -> Event {
    Event::Leased(Lease {
        attempt: 1,
        holder: node_holder(1, 1),
    })
}

/// A call of `capsule` under `key`.
fn called(capsule: &str, key: &str, arguments: Value) -> Launched {
    let call_key = Digest::of(key);
    let Launched { work, parent, .. } = launched_child();
    let mut work = work;
    if let Work::Capsule { name, .. } = &mut work {
        *name = capsule.parse().expect("a name");
    }
    let parent = parent.map(|parent| Parent { call_key, ..parent });
    Launched {
        work,
        parent,
        payload: Payload::Inline(arguments),
        ..launched_child()
    }
}

fn branch<'a>(run: &'a Run, callees: Vec<Branch<'a>>) -> Branch<'a> {
    Branch {
        run,
        spent: Spent::default(),
        callees,
    }
}

#[test]
fn run_waits_for_a_node_a_pause_or_callees() {
    let queued = run(launched(), None);
    let pool = Pool::any();
    assert_eq!(
        branch(&queued, Vec::new()).waits_for(),
        Some(Wait::Node(&pool))
    );

    let retries = Retries {
        capsule: 1,
        ..Retries::default()
    };
    let launch = Event::Launched(Box::new(Launched {
        retries,
        ..launched()
    }));
    let events = [launch, lease(), Event::AttemptFailed(Box::new(failed(1)))];
    let resting = run_of(events);
    let waits = branch(&resting, Vec::new());
    assert!(
        matches!(waits.waits_for(), Some(Wait::Rest { error, .. }) if error.code == "capsule_exit")
    );

    let held = run_of([Event::Launched(Box::new(launched())), lease()]);
    let done = run(called("chart", "one", json!({})), Some(ended(1)));
    let open = run(called("chart", "two", json!({})), None);
    let waits = branch(&held, vec![branch(&done, vec![]), branch(&open, vec![])]);
    assert_eq!(waits.waits_for(), Some(Wait::Callees(vec![open.id])));
    assert_eq!(branch(&held, vec![branch(&done, vec![])]).waits_for(), None);
    assert_eq!(branch(&done, vec![branch(&open, vec![])]).waits_for(), None);
}

#[test]
fn equal_trees_are_equal_at_any_time() {
    let left = run(launched(), Some(ended(1)));
    let mut slower = ended(1);
    slower.timings.waiting_ms = 900;
    let right = run(launched(), Some(slower));
    let comparison = compare(&branch(&left, vec![]), &branch(&right, vec![]));
    assert!(comparison.is_same(), "{comparison:?}");
    let measures: Vec<_> = comparison.pairs[0].measures.iter().collect();
    assert_eq!(measures.len(), 1, "{measures:?}");
    assert_eq!(measures[0].place, "/waited_ms");
}

#[test]
fn inputs_and_outputs_are_compared() {
    let left = run(launched(), Some(ended(1)));
    let mut other = launched();
    if let Work::Capsule { content, image, .. } = &mut other.work {
        *content = Digest::of("another");
        image.config_digest = "sha256:another".into();
    }
    other.payload = Payload::Artifact {
        digest: Digest::of("large"),
        size_bytes: 20_000,
    };
    other.files = vec![file("penguins.csv"), file("more.csv")];
    let failure = Ended {
        outcome: Outcome::Failed,
        error: Some(error(ErrorCode::CapsuleExit)),
        output: None,
        files: Vec::new(),
        ..ended(1)
    };
    let right = run(other, Some(failure));
    let comparison = compare(&branch(&left, vec![]), &branch(&right, vec![]));
    let found = comparison.pairs[0].differences.iter();
    let places: Vec<_> = found.map(|found| found.place.as_str()).collect();
    assert_eq!(
        places,
        [
            "/arguments/artifact",
            "/arguments/size_bytes",
            "/arguments/table",
            "/capsule/content",
            "/capsule/image",
            "/error",
            "/files/report.pdf",
            "/inputs/more.csv",
            "/outcome",
            "/output",
        ]
    );
    assert!(!comparison.is_same());
}

#[test]
fn callees_are_paired_by_key_then_by_capsule_and_order() {
    let root = run(launched(), None);
    let call = |capsule: &str, key: &str, number: u32| {
        run(called(capsule, key, json!({"n": number})), None)
    };
    // a and b have the same keys on both sides, in another order; c and x are the same call with other arguments; only
    // the left tree calls d, only the right tree calls y and z.
    let left = [
        call("chart", "a", 1),
        call("chart", "b", 2),
        call("chart", "c", 3),
        call("report", "d", 4),
    ];
    let right = [
        call("chart", "b", 2),
        call("chart", "a", 1),
        call("chart", "x", 9),
        call("chart", "y", 8),
        call("table", "z", 7),
    ];
    let left = branch(&root, left.iter().map(|run| branch(run, vec![])).collect());
    let right = branch(&root, right.iter().map(|run| branch(run, vec![])).collect());
    let comparison = compare(&left, &right);
    assert_eq!(comparison.compared, 4);
    let pairs: Vec<_> = comparison
        .pairs
        .iter()
        .map(|pair| (pair.path.as_str(), pair.differences[0].place.as_str()))
        .collect();
    assert_eq!(pairs, [("survey/chart[3]", "/arguments/n")]);
    let paths = |list: &[OneSided]| -> Vec<String> {
        list.iter().map(|found| found.path.clone()).collect()
    };
    assert_eq!(paths(&comparison.only_left), ["survey/report"]);
    assert_eq!(
        paths(&comparison.only_right),
        ["survey/chart[4]", "survey/table"]
    );
}

/// Pairs the callees of two runs, which launch them in these orders.
#[track_caller]
fn check_pairs(left: &[Launched], right: &[Launched], expected: &[(usize, usize)]) {
    let runs = |calls: &[Launched]| -> Vec<Run> {
        calls.iter().map(|call| run(call.clone(), None)).collect()
    };
    let (left, right) = (runs(left), runs(right));
    let left: Vec<_> = left.iter().map(|run| branch(run, vec![])).collect();
    let right: Vec<_> = right.iter().map(|run| branch(run, vec![])).collect();
    assert_eq!(Pairing::of(&left, &right).pairs, expected);
}

#[test]
fn permuted_parallel_calls_are_paired_by_their_inputs() {
    let files = |call: Launched, name: &str| Launched {
        files: vec![file(name)],
        ..call
    };
    // Each caller chose its keys at random.
    let left = [
        called("chart", "1", json!({"n": 1})),
        called("chart", "2", json!({"n": 2, "at": "x"})),
        called("table", "3", json!({"n": 1})),
        files(called("chart", "4", json!({"n": 1})), "penguins.csv"),
        files(called("chart", "5", json!({"n": 1})), "whales.csv"),
    ];
    let order = [4, 2, 1, 0, 3];
    let right = order.map(|index| {
        let mut call: Launched = left[index].clone();
        let parent = call.parent.as_mut().expect("it is a callee");
        parent.call_key = Digest::of(format!("other {index}"));
        call
    });
    check_pairs(&left, &right, &[(0, 3), (1, 2), (2, 1), (3, 4), (4, 0)]);
}

#[test]
fn key_precedes_inputs_and_equal_inputs_are_paired_in_order() {
    let call = |key: &str, number: u32| called("chart", key, json!({"n": number}));
    // The calls with the key `same` correspond although their inputs differ.
    let left = [call("same", 1), call("a", 1), call("b", 1), call("c", 7)];
    let right = [call("d", 1), call("e", 8), call("f", 1), call("same", 2)];
    check_pairs(&left, &right, &[(0, 3), (1, 0), (2, 2), (3, 1)]);
}

#[test]
fn listed_differences_are_bounded_and_the_rest_is_counted() {
    let with = |number: usize| {
        let members = (0..number).map(|index| (format!("k{index:04}"), json!(index)));
        let payload = Payload::Inline(Value::Object(members.collect()));
        run(
            Launched {
                payload,
                ..launched()
            },
            None,
        )
    };
    let (left, right) = (with(0), with(DIFFERENCES_MAX + 7));
    let comparison = compare(&branch(&left, vec![]), &branch(&right, vec![]));
    assert_eq!(comparison.pairs[0].differences.len(), DIFFERENCES_MAX);
    assert_eq!(comparison.left_out, 7);
    assert!(!comparison.is_same());
}

#[test]
fn one_sided_run_is_listed_with_the_number_of_runs_below_it() {
    let root = run(launched(), None);
    let caller = run(called("report", "a", json!({})), None);
    let callee = run(called("chart", "b", json!({})), None);
    let below = branch(&caller, vec![branch(&callee, vec![])]);
    let comparison = compare(&branch(&root, vec![below]), &branch(&root, vec![]));
    let expected = OneSided {
        path: "survey/report".into(),
        run: caller.id,
        below: 1,
    };
    assert_eq!(comparison.only_left, [expected]);
}
