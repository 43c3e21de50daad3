//! What may happen to a run, and what may not.

use proptest::prelude::*;

use super::fixtures::*;
use super::*;
use crate::event::{CloudEvent, Header};
use crate::id::EventId;

/// The only caller of `decide`: a new signature changes this, not the tests.
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
fn the_same_request_joins_and_another_is_refused() {
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
    check(
        &[launch()],
        Command::Launch(Box::new(other)),
        &Err(Rejection::KeyReused),
    );
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
fn a_queue_that_was_made_anew_replaces_only_who_is_gone() {
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
fn a_gateway_ends_what_no_node_has() {
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
fn a_cancel_is_asked_for_once() {
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
fn a_run_that_must_not_start_says_why() {
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
        Some((Outcome::Failed, "node_lost".into()))
    );
}

#[test]
fn a_takeover_counts_as_a_lost_attempt() {
    let run = run_of([launch(), leased(1, 1, 1), leased(2, 2, 2)]);
    assert_eq!((run.attempts, run.attempts_lost), (2, 1));
}

#[test]
fn only_an_ended_root_is_sealed() {
    let history = [launch(), leased(1, 1, 1), ended_event(1)];
    let result = recorded(history.clone()).pop().expect("three events").hash;
    let seal = Sealed {
        result,
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
fn a_history_with_a_gap_is_broken() {
    let mut history = recorded([launch(), leased(1, 1, 1), ended_event(1)]);
    history.remove(1);
    let error = Run::replay(root(), history).expect_err("a missing event");
    assert_eq!(error.reason, "its chain names another event before it");
}

#[test]
fn every_event_goes_there_and_back() {
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

/// Commands that anybody may come with at any time.
fn any_command() -> impl Strategy<Value = Command> {
    let holder = (1..4_u128, 1..6_u64).prop_map(|(node, delivery)| node_holder(node, delivery));
    prop_oneof![
        Just(Command::Launch(Box::new(launched()))),
        holder.prop_map(lease),
        Just(Command::TakeOverToEnd {
            holder: gateway_holder(),
            lease_seconds: 30
        }),
        (1..6_u32).prop_map(|attempt| Command::LoseAttempt {
            attempt,
            error: error(ErrorCode::RuntimeFailed)
        }),
        Just(Command::Cancel(cancel())),
        (1..6_u32).prop_map(end),
    ]
}

proptest! {
    /// Whatever is asked in whatever order: what `decide` stores can be replayed, there is at most
    /// one result, and nothing but a seal after it.
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
