//! Allowed and rejected events of a run.

mod admissions;
mod dead_letters;
mod limits;
mod refusals;
mod states;
mod steps;

use proptest::prelude::*;

use super::fixtures::*;
use super::*;
use crate::event::{CloudEvent, Header};
use crate::id::EventId;

/// The only caller of `decide`: a new signature changes only this function.
#[expect(
    clippy::needless_pass_by_value,
    reason = "tests read better without borrowing"
)]
fn check(history: &[Event], command: Command, expected: &Decision) {
    let run = (!history.is_empty()).then(|| run_of(history.iter().cloned()));
    assert_eq!(decide(run.as_ref(), &command, NOW), *expected);
}

fn launch() -> Event {
    Event::Launched(Box::new(launched()))
}

fn leased(attempt: u32, node: u128, delivery: u64) -> Event {
    Event::Leased(Lease {
        attempt,
        holder: node_holder(node, delivery),
    })
}

fn lost(attempt: u32) -> Event {
    Event::AttemptLost(AttemptLost {
        attempt,
        error: error(ErrorCode::NodeLost),
    })
}

fn lease(holder: Holder) -> Command {
    Command::Lease {
        holder,
        is_holder_gone: false,
    }
}

fn end(attempt: u32) -> Command {
    Command::End(Box::new(ended(attempt)))
}

fn ended_event(attempt: u32) -> Event {
    Event::Ended(Box::new(ended(attempt)))
}

fn cancel() -> CancelRequested {
    CancelRequested {
        requested_by: "operator".into(),
        reason: "enough".into(),
    }
}

#[test]
fn same_request_joins_and_different_request_is_refused() {
    check(
        &[],
        Command::Launch(Box::new(launched())),
        &Ok(Some(launch())),
    );
    check(
        &[launch()],
        Command::Launch(Box::new(launched())),
        &Ok(None),
    );
    let other = Launched {
        request: Digest::of("another request"),
        ..launched()
    };
    let of_another_tenant = Launched {
        tenant: "acme".parse().expect("a name"),
        ..launched()
    };
    for other in [other, of_another_tenant] {
        check(
            &[launch()],
            Command::Launch(Box::new(other)),
            &Err(Rejection::KeyReused),
        );
    }
}

#[test]
fn nothing_happens_to_an_unknown_run() {
    check(&[], lease(node_holder(1, 1)), &Err(Rejection::Unknown));
    check(&[], end(1), &Err(Rejection::Unknown));
}

#[test]
fn a_later_delivery_takes_over() {
    check(
        &[launch()],
        lease(node_holder(1, 1)),
        &Ok(Some(leased(1, 1, 1))),
    );
    check(
        &[launch(), leased(1, 1, 1)],
        lease(node_holder(2, 2)),
        &Ok(Some(leased(2, 2, 2))),
    );
}

#[test]
fn an_earlier_delivery_never_takes_over() {
    check(
        &[launch(), leased(1, 2, 2)],
        lease(node_holder(1, 1)),
        &Err(Rejection::Superseded),
    );
    check(
        &[launch(), leased(1, 2, 2)],
        lease(node_holder(1, 2)),
        &Err(Rejection::Superseded),
    );
}

#[test]
fn a_delivery_leads_to_one_lease_at_most() {
    let history = [launch(), leased(1, 1, 2), lost(1)];
    for delivery in [1, 2] {
        check(
            &history,
            lease(node_holder(2, delivery)),
            &Err(Rejection::Superseded),
        );
    }
    check(
        &history,
        lease(node_holder(2, 3)),
        &Ok(Some(leased(2, 2, 3))),
    );
    let mut ended_by_gateway = history.to_vec();
    ended_by_gateway.push(Event::Leased(Lease {
        attempt: 2,
        holder: gateway_holder(),
    }));
    check(
        &ended_by_gateway,
        lease(node_holder(2, 2)),
        &Err(Rejection::Superseded),
    );
}

#[test]
fn rebuilt_queue_replaces_only_an_absent_holder() {
    let mut renewed = node_holder(2, 1);
    if let Holder::Node { work, .. } = &mut renewed {
        *work = WorkPosition {
            queue_created_ms: work.queue_created_ms + 1,
            sequence: 1,
            delivery: 1,
        };
    }
    let history = [launch(), leased(1, 1, 9)];
    check(&history, lease(renewed.clone()), &Err(Rejection::Held));
    let expected = Ok(Some(Event::Leased(Lease {
        attempt: 2,
        holder: renewed.clone(),
    })));
    let replacing = Command::Lease {
        holder: renewed,
        is_holder_gone: true,
    };
    check(&history, replacing, &expected);
}

#[test]
fn a_repeated_lease_finds_its_work_done() {
    check(
        &[launch(), leased(1, 1, 1)],
        lease(node_holder(1, 1)),
        &Ok(None),
    );
}

#[test]
fn only_the_holder_ends_a_run() {
    let taken_over = [launch(), leased(1, 1, 1), leased(2, 2, 2)];
    check(&taken_over, end(1), &Err(Rejection::Superseded));
    check(&taken_over, end(2), &Ok(Some(ended_event(2))));
    check(&[launch()], end(1), &Err(Rejection::Superseded));
    check(
        &[launch(), leased(1, 1, 1), lost(1)],
        end(1),
        &Err(Rejection::Superseded),
    );
}

#[test]
fn a_lease_is_never_granted_after_a_result() {
    let history = [launch(), leased(1, 1, 1), ended_event(1)];
    check(&history, lease(node_holder(2, 2)), &Err(Rejection::Ended));
    let takeover = Command::TakeOverToEnd {
        holder: gateway_holder(),
        lease_seconds: 30,
    };
    check(&history, takeover, &Err(Rejection::Ended));
    check(&history, end(1), &Ok(None));
    check(&history, end(2), &Err(Rejection::Superseded));
    check(&history, Command::Cancel(cancel()), &Err(Rejection::Ended));
}

#[test]
fn gateway_ends_a_run_that_no_node_has() {
    let takeover = Command::TakeOverToEnd {
        holder: gateway_holder(),
        lease_seconds: 30,
    };
    let granted = |attempt| {
        Ok(Some(Event::Leased(Lease {
            attempt,
            holder: gateway_holder(),
        })))
    };
    check(&[launch()], takeover.clone(), &granted(1));
    check(
        &[launch(), leased(1, 1, 1)],
        takeover.clone(),
        &Err(Rejection::Held),
    );
    let run = run_of([launch(), leased(1, 1, 1)]);
    let overdue = run.abandoned_at(30);
    assert_eq!(decide(Some(&run), &takeover, overdue), granted(2));
}

#[test]
fn cancel_is_requested_once() {
    check(
        &[launch()],
        Command::Cancel(cancel()),
        &Ok(Some(Event::CancelRequested(cancel()))),
    );
    check(
        &[launch(), Event::CancelRequested(cancel())],
        Command::Cancel(cancel()),
        &Ok(None),
    );
}

#[test]
fn run_that_must_not_start_reports_why() {
    let why = |events: Vec<Event>, now| {
        run_of(events)
            .forbids_start(now)
            .map(|(outcome, error)| (outcome, error.code))
    };
    assert_eq!(why(vec![launch()], NOW), None);
    let cancelled = why(vec![launch(), Event::CancelRequested(cancel())], NOW);
    assert_eq!(cancelled, Some((Outcome::Cancelled, "cancelled".into())));
    let late = why(vec![launch()], launched().deadline);
    assert_eq!(late, Some((Outcome::TimedOut, "deadline_exceeded".into())));
    let mut events = vec![launch()];
    for attempt in 1..=ATTEMPTS_LOST_MAX {
        events.extend([leased(attempt, 1, attempt.into()), lost(attempt)]);
    }
    assert_eq!(
        why(events, NOW),
        Some((Outcome::Failed, "dead_letter".into()))
    );
}

#[test]
fn a_takeover_counts_as_a_lost_attempt() {
    let run = run_of([launch(), leased(1, 1, 1), leased(2, 2, 2)]);
    assert_eq!((run.attempts, run.attempts_lost), (2, 1));
}

/// A launch with these retries.
fn launch_with(capsule: u32, time: u32) -> Event {
    Event::Launched(Box::new(Launched {
        retries: Retries { capsule, time },
        ..launched()
    }))
}

fn failed_event(attempt: u32) -> Event {
    Event::AttemptFailed(Box::new(failed(attempt)))
}

#[test]
fn only_the_holder_fails_its_attempt() {
    let history = [launch_with(1, 0), leased(1, 1, 1)];
    let fail = |attempt| Command::FailAttempt(Box::new(failed(attempt)));
    check(&history, fail(1), &Ok(Some(failed_event(1))));
    check(&history, fail(2), &Err(Rejection::Superseded));
    let queued = [launch_with(1, 0), leased(1, 1, 1), failed_event(1)];
    check(&queued, fail(1), &Ok(None));
    check(&queued, end(1), &Err(Rejection::Superseded));
    let again = [queued.as_slice(), &[leased(2, 2, 2)]].concat();
    check(&again, fail(1), &Err(Rejection::Superseded));
    check(&again, end(2), &Ok(Some(ended_event(2))));
}

#[test]
fn each_kind_of_failure_has_its_own_retries() {
    let exit = (Outcome::Failed, error(ErrorCode::CapsuleExit));
    let time = (Outcome::TimedOut, error(ErrorCode::TimedOut));
    let is_tried = |run: &Run, (outcome, error): &(Outcome, RunError)| {
        run.retry_after(*outcome, error, NOW).is_some()
    };
    let run = run_of([launch_with(1, 1), leased(1, 1, 1)]);
    assert!(is_tried(&run, &exit) && is_tried(&run, &time));
    let run = run_of([
        launch_with(1, 1),
        leased(1, 1, 1),
        failed_event(1),
        leased(2, 1, 2),
    ]);
    assert_eq!(
        run.failed,
        Retries {
            capsule: 1,
            time: 0
        }
    );
    assert!(!is_tried(&run, &exit) && is_tried(&run, &time));
    // Losses by the platform use up no retry.
    let run = run_of([launch_with(1, 0), leased(1, 1, 1), lost(1), leased(2, 1, 2)]);
    assert!(is_tried(&run, &exit) && !is_tried(&run, &time));
}

#[test]
fn permanent_failure_is_not_retried() {
    let run = run_of([launch_with(20, 20), leased(1, 1, 1)]);
    let tried = |outcome, error: &RunError| run.retry_after(outcome, error, NOW);
    for code in [ErrorCode::Cancelled, ErrorCode::DeadlineExceeded] {
        assert_eq!(tried(Outcome::TimedOut, &error(code)), None, "{code}");
    }
    assert_eq!(tried(Outcome::Failed, &error(ErrorCode::NodeLost)), None);
    let own = |retryable| RunError {
        code: "no_such_station".into(),
        retryable,
        ..error(ErrorCode::CapsuleError)
    };
    assert_eq!(tried(Outcome::Failed, &own(false)), None);
    assert!(tried(Outcome::Failed, &own(true)).is_some());
    // Without a code of its own, or with a code of its callee, it is still the capsule's error.
    for code in [ErrorCode::CapsuleError, ErrorCode::ArgumentsInvalid] {
        let problem = RunError {
            code: code.as_str().into(),
            ..own(false)
        };
        assert_eq!(tried(Outcome::Failed, &problem), None, "{code}");
    }
}

#[test]
fn failures_are_retried_at_most_as_requested() {
    let history = [launch(), leased(1, 1, 1)];
    let fail = Command::FailAttempt(Box::new(failed(1)));
    check(&history, fail, &Err(Rejection::NoRetry));
    let events = recorded([launch(), leased(1, 1, 1), failed_event(1)]);
    let error = Run::replay(root(), events).expect_err("a retry that nobody wants");
    assert_eq!(
        error.reason,
        "the run has no retry left for this kind of failure"
    );
}

#[test]
fn an_error_of_any_size_fits_an_event() {
    let wide = "\u{1}".repeat(100_000);
    let large = RunError {
        code: wide.clone(),
        message: wide.clone(),
        detail: Some(serde_json::json!({"problems": [wide], "last_lines": ["the end"]})),
        ..error(ErrorCode::OutputInvalid)
    };
    let bounded = large.bounded();
    let bytes = serde_json::to_vec(&bounded).expect("JSON").len();
    assert!(bytes < 17 * 1024, "{bytes}");
    let lines = serde_json::json!(["the end"]);
    let detail = bounded.detail.unwrap();
    assert_eq!(detail["last_lines"], lines);
    assert!(detail["omitted_bytes"].as_u64().unwrap() > 100_000);
    let small = error(ErrorCode::OutputInvalid);
    assert_eq!(small.clone().bounded(), small);
}

#[test]
fn no_retry_begins_after_a_cancel_or_the_deadline() {
    let exit = error(ErrorCode::CapsuleExit);
    let history = [launch_with(1, 0), leased(1, 1, 1)];
    let run = run_of(history.clone());
    let late = run.deadline() - jiff::SignedDuration::from_millis(100);
    assert_eq!(run.retry_after(Outcome::Failed, &exit, late), None);
    let cancelled = [history.as_slice(), &[Event::CancelRequested(cancel())]].concat();
    let run = run_of(cancelled);
    assert_eq!(run.retry_after(Outcome::Failed, &exit, NOW), None);
}

#[test]
fn pauses_double_up_to_five_minutes_and_differ() {
    let exit = error(ErrorCode::CapsuleExit);
    let mut events = vec![launch_with(RETRIES_MAX, 0)];
    let mut shares = std::collections::BTreeSet::new();
    for attempt in 1..=RETRIES_MAX {
        events.push(leased(attempt, 1, attempt.into()));
        let pause = run_of(events.clone()).retry_after(Outcome::Failed, &exit, NOW);
        let pause = pause.expect("a retry is left").pause.as_millis();
        let longest = (1_000_u128 << (attempt - 1)).min(300_000);
        assert!(
            (longest / 2..=longest).contains(&pause),
            "{attempt}: {pause}"
        );
        shares.insert(pause * 1_000 / longest);
        events.push(failed_event(attempt));
    }
    assert!(shares.len() > 10, "{shares:?}");
}

#[test]
fn retries_are_read_with_all_mistakes() {
    let read = |value: serde_json::Value| Retries::read(value.as_object().expect("an object"));
    let good = read(serde_json::json!({"capsule": 2, "time": 20}));
    assert_eq!(
        good,
        Ok(Retries {
            capsule: 2,
            time: 20
        })
    );
    let errors = read(serde_json::json!({"capsule": -1, "time": 21, "plat/form": 1}));
    let pointers: Vec<String> = errors
        .expect_err("three")
        .into_iter()
        .map(|(at, _)| at)
        .collect();
    assert_eq!(pointers, ["/capsule", "/plat~1form", "/time"]);
}

#[test]
fn only_an_ended_root_is_sealed() {
    let history = [launch(), leased(1, 1, 1), ended_event(1)];
    let result = recorded(history.clone()).pop().expect("three events").hash;
    let seal = Sealed {
        result,
        tree: None,
        public_key: String::new(),
        signature: String::new(),
    };
    check(
        &history,
        Command::Seal(seal.clone()),
        &Ok(Some(Event::Sealed(seal.clone()))),
    );
    check(
        &history[..2],
        Command::Seal(seal.clone()),
        &Err(Rejection::NotSealable),
    );
    let other = Sealed {
        result: Digest::of("another"),
        ..seal
    };
    check(&history, Command::Seal(other), &Err(Rejection::NotSealable));
}

#[test]
fn times_beyond_the_maximum_become_the_maximum() {
    let launch = Launched {
        deadline: Timestamp::MAX,
        retries: Retries {
            capsule: 1,
            time: 0,
        },
        ..launched()
    };
    let failed = AttemptFailed {
        pause_ms: u64::MAX,
        ..failed(1)
    };
    let run = run_of([
        Event::Launched(Box::new(launch)),
        leased(1, 1, 1),
        Event::AttemptFailed(Box::new(failed)),
    ]);
    assert_eq!(
        run.rests.as_ref().map(|rest| rest.until),
        Some(Timestamp::MAX)
    );
    assert_eq!(run.abandoned_at(30), Timestamp::MAX);
}

#[test]
fn a_history_with_a_gap_is_broken() {
    let mut history = recorded([launch(), leased(1, 1, 1), ended_event(1)]);
    history.remove(1);
    let error = Run::replay(root(), history).expect_err("a missing event");
    assert_eq!(
        error.reason,
        "the event names another event as its predecessor"
    );
}

#[test]
fn every_event_round_trips() {
    for event in every_event() {
        let header = Header {
            id: EventId::new(uuid::Uuid::from_u128(1)),
            source: "/test".into(),
            time: NOW,
        };
        let sent = CloudEvent::new(header, root().to_string(), None, event);
        let read = CloudEvent::<Event>::decode(&sent.encode().expect("a small event"))
            .expect("our own bytes");
        assert_eq!(read, sent);
    }
}

/// Commands that may come at any time.
fn any_command() -> impl Strategy<Value = Command> {
    let holder = (1..4_u128, 1..6_u64).prop_map(|(node, delivery)| node_holder(node, delivery));
    prop_oneof![
        Just(Command::Launch(Box::new(launched()))),
        holder.prop_map(lease),
        Just(Command::TakeOverToEnd {
            holder: gateway_holder(),
            lease_seconds: 30
        }),
        (1..60_u64).prop_map(|delivery| Command::CountDelivery(delivered(delivery))),
        (1..6_u32).prop_map(|attempt| Command::LoseAttempt {
            attempt,
            error: error(ErrorCode::RuntimeFailed)
        }),
        (1..6_u32).prop_map(|attempt| Command::FailAttempt(Box::new(failed(attempt)))),
        Just(Command::Cancel(cancel())),
        (1..6_u32).prop_map(end),
    ]
}

proptest! {
    /// For any commands in any order: the stored events can be replayed, there is at most one result, and only a seal
    /// follows it.
    #[test]
    fn decisions_make_histories(commands in prop::collection::vec(any_command(), 1..60)) {
        let mut events: Vec<Event> = Vec::new();
        for command in commands {
            let run = (!events.is_empty()).then(|| run_of(events.clone()));
            if let Ok(Some(event)) = decide(run.as_ref(), &command, NOW) {
                prop_assert!(!events.iter().any(|event| matches!(event, Event::Ended(_))), "{event:?} after a result");
                events.push(event);
            }
        }
        if !events.is_empty() {
            let run = run_of(events.clone());
            let leases = events.iter().filter(|event| matches!(event, Event::Leased(_))).count();
            prop_assert_eq!(run.attempts as usize, leases);
        }
    }
}

#[test]
fn text_of_an_error_ends_with_the_last_lines_of_output() {
    let detail = serde_json::json!({"code": 1, "last_lines": ["reading", "KeyError: 'x'"]});
    assert_eq!(
        error_text("failed", Some(&detail)),
        "failed\nreading\nKeyError: 'x'"
    );
    assert_eq!(
        error_text("failed", Some(&serde_json::json!([1]))),
        "failed"
    );
    assert_eq!(error_text("failed", None), "failed");
}
