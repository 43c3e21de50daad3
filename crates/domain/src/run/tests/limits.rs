//! Limits of a request, and the runs that they end.

use serde_json::json;

use super::*;

fn launch_limited(limits: Limits) -> Event {
    Event::Launched(Box::new(Launched {
        limits,
        ..launched()
    }))
}

fn queued_at_most(seconds: u32) -> Event {
    launch_limited(Limits {
        queue_seconds: Some(seconds),
        ..Limits::default()
    })
}

fn code_at(run: &Run, seconds: i64) -> Option<String> {
    let now = NOW + jiff::SignedDuration::from_secs(seconds);
    run.forbids_start(now).map(|(_, error)| error.code)
}

#[test]
fn limits_are_read_with_all_mistakes() {
    let read = |value: serde_json::Value| Limits::read(value.as_object().expect("an object"));
    let good = read(json!({"queue_seconds": 60, "heartbeat_seconds": null}));
    let expected = Limits {
        queue_seconds: Some(60),
        ..Limits::default()
    };
    assert_eq!(good, Ok(expected));
    let errors = read(json!({
        "queue_seconds": 0, "preparation_seconds": LIMIT_SECONDS_MAX + 1, "heartbeat_seconds": "5",
        "run/seconds": 1, "collection_seconds": LIMIT_SECONDS_MAX,
    }));
    let pointers: Vec<String> = errors
        .expect_err("four")
        .into_iter()
        .map(|(at, _)| at)
        .collect();
    let expected = [
        "/heartbeat_seconds",
        "/preparation_seconds",
        "/queue_seconds",
        "/run~1seconds",
    ];
    assert_eq!(pointers, expected);
}

#[test]
fn defaults_are_stored_and_given_limits_stay() {
    let given = Limits {
        collection_seconds: Some(7),
        ..Limits::default()
    };
    let expected = Limits {
        preparation_seconds: Some(PREPARATION_SECONDS_DEFAULT),
        ..given
    };
    assert_eq!(given.resolved(), expected);
    assert!(given.resolved().are_possible());
    assert!(
        !Limits {
            queue_seconds: Some(0),
            ..given
        }
        .are_possible()
    );
}

/// Launches of earlier versions have no limits, and are encoded again without them.
#[test]
fn a_launch_without_limits_is_read_as_one_without() {
    let old = serde_json::to_value(launched()).expect("JSON");
    assert_eq!((old.get("limits"), old.get("requeued_from")), (None, None));
    let read: Launched = serde_json::from_value(old).expect("a launch");
    assert!(read.limits.is_none() && read.requeued_from.is_none());
    let with = Launched {
        limits: Limits::default().resolved(),
        requeued_from: Some(child()),
        ..launched()
    };
    let bytes = serde_json::to_vec(&with).expect("JSON");
    assert_eq!(
        serde_json::from_slice::<Launched>(&bytes).expect("a launch"),
        with
    );
}

#[test]
fn run_that_no_node_takes_in_time_ends() {
    let run = run_of([queued_at_most(60)]);
    assert_eq!(code_at(&run, 59), None);
    assert_eq!(code_at(&run, 60), Some("queue_timed_out".into()));
    assert_eq!(code_at(&run_of([launch()]), 60), None);
}

/// All fixtures happen at one time, so a lease comes without delay.
#[test]
fn the_time_in_the_queue_ends_with_the_first_lease() {
    let run = run_of([queued_at_most(60), leased(1, 1, 1), lost(1)]);
    assert_eq!(code_at(&run, 1_000), None);
    // A lease of a gateway that wanted to end the run does not count.
    let taken = Event::Leased(Lease {
        attempt: 1,
        holder: gateway_holder(),
    });
    assert_eq!(
        code_at(&run_of([queued_at_most(60), taken]), 60),
        Some("queue_timed_out".into())
    );
}

#[test]
fn missed_heartbeat_is_a_time_failure_and_queue_timeout_is_not() {
    let run = run_of([launch_with(0, 1), leased(1, 1, 1)]);
    let kind = |code| {
        let retry = run.retry_after(Outcome::TimedOut, &error(code), NOW);
        retry.map(|retry| retry.kind)
    };
    assert_eq!(kind(ErrorCode::HeartbeatMissed), Some(FailureKind::Time));
    assert_eq!(kind(ErrorCode::QueueTimedOut), None);
}
