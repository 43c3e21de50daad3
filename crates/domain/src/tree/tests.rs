use serde_json::{Value, json};

use super::*;
use crate::digest::Digest;
use crate::error_code::ErrorCode;
use crate::run::fixtures::{
    ended, error, failed, file, launched, launched_child, node_holder, run_of,
};
use crate::run::{Ended, Event, Launched, Lease, Outcome, Parent, Payload, Retries, Work};

/// A run that was launched as `launched`, and ended as `ended` if it did.
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
fn a_run_waits_for_a_node_for_its_rest_or_for_what_it_called() {
    let queued = run(launched(), None);
    let label = Label::any();
    assert_eq!(
        branch(&queued, Vec::new()).waits_for(),
        Some(Wait::Node(&label))
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
fn what_ran_twice_alike_is_the_same_whenever_it_ran() {
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
fn everything_that_was_given_and_made_is_compared() {
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
    // The keys of a and b are the same on both sides, in another order; c and x are the same call with
    // other arguments; d is called on the left alone, y and z on the right alone.
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

#[test]
fn what_is_told_has_a_bound_and_what_is_left_out_is_counted() {
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
fn a_run_that_only_one_tree_has_is_told_with_how_much_is_below_it() {
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
