//! Dead-lettered runs.

use super::*;

fn count(delivery: u64) -> Command {
    Command::CountDelivery(delivered(delivery))
}

fn counted(delivery: u64) -> Event {
    Event::Delivered(delivered(delivery))
}

/// A launch of which `number` deliveries in a row killed their nodes.
fn undelivered(number: u64) -> Vec<Event> {
    let deliveries = (1..=number).map(|number| counted(DELIVERIES_UNCOUNTED + number));
    [launch()].into_iter().chain(deliveries).collect()
}

#[test]
fn five_lost_attempts_make_a_dead_letter_that_says_why() {
    let mut events = vec![launch()];
    for attempt in 1..=ATTEMPTS_LOST_MAX {
        assert_eq!(run_of(events.clone()).dead_letter(), None);
        events.extend([leased(attempt, 1, attempt.into()), lost(attempt)]);
    }
    let run = run_of(events);
    assert_eq!(run.dead_letter(), Some(DeadLetterReason::AttemptsLost));
    let (outcome, error) = run.forbids_start(NOW).expect("it is dead-lettered");
    let ended = Ended::without_start(6, outcome, error.clone());
    assert_eq!(ended.dead_letter(), Some(DeadLetterReason::AttemptsLost));
    assert_eq!(
        error.message,
        "5 attempts ended without a result; the last: because (node_lost)"
    );
    let detail = error.detail.expect("details");
    assert_eq!(detail["reason"], "attempts_lost");
    assert_eq!(detail["deliveries"], 5);
    assert_eq!(detail["last_error"]["code"], "node_lost");
}

#[test]
fn capsule_error_with_a_platform_code_is_no_dead_letter() {
    let detail = serde_json::json!({"reason": "not_leased"});
    let ours = error(ErrorCode::DeadLetter).with_detail(detail);
    let own = RunError {
        source: crate::error_code::ErrorSource::Capsule,
        ..ours.clone()
    };
    let reason = |error| Ended::without_start(1, Outcome::Failed, error).dead_letter();
    assert_eq!(reason(own), None);
    assert_eq!(reason(ours), Some(DeadLetterReason::NotLeased));
}

#[test]
fn the_first_deliveries_raise_no_suspicion() {
    let work = |delivery| delivered(delivery).work;
    let run = run_of([launch()]);
    assert!(!run.is_suspected(&work(DELIVERIES_UNCOUNTED)));
    assert!(run.is_suspected(&work(DELIVERIES_UNCOUNTED + 1)));
    // Deliveries with a lease do not count, nor do those of another message.
    let run = run_of([launch(), leased(1, 1, 10), lost(1)]);
    assert!(!run.is_suspected(&work(DELIVERIES_UNCOUNTED + 10)));
    assert!(run.is_suspected(&work(DELIVERIES_UNCOUNTED + 11)));
    let rebuilt = WorkPosition {
        queue_created_ms: 1_700_000_000_001,
        ..work(DELIVERIES_UNCOUNTED)
    };
    assert!(!run.is_suspected(&rebuilt));
}

#[test]
fn each_delivery_is_counted_once_up_to_the_maximum() {
    check(&[launch()], count(46), &Ok(Some(counted(46))));
    check(&undelivered(1), count(46), &Ok(None));
    check(&undelivered(1), count(47), &Ok(Some(counted(47))));
    check(&undelivered(6), count(52), &Ok(None));
    check(&[launch(), leased(1, 1, 1)], count(47), &Ok(None));
    let ended = [launch(), leased(1, 1, 1), ended_event(1)];
    check(&ended, count(47), &Err(Rejection::Ended));
}

#[test]
fn fifty_deliveries_without_a_lease_make_a_dead_letter() {
    let run = run_of(undelivered(5));
    assert_eq!(
        run.dead_letter(),
        None,
        "the fifth may still come to a lease"
    );
    let run = run_of(undelivered(6));
    assert_eq!(
        run.deliveries.last.map(|last| last.delivery),
        Some(DELIVERIES_MAX + 1)
    );
    assert_eq!(run.dead_letter(), Some(DeadLetterReason::NotLeased));
    let (outcome, error) = run.forbids_start(NOW).expect("it is dead-lettered");
    assert_eq!(
        (outcome, error.code.as_str()),
        (Outcome::Failed, "dead_letter")
    );
    assert_eq!(
        error.message,
        "the launch was delivered 51 times, and the last delivery led to no attempt"
    );
    // A gateway that leases the run to end it finds it dead-lettered, and so does the next gateway if the first one
    // dies.
    let events = [undelivered(6), vec![leased(1, 1, 51)]].concat();
    assert!(run_of(events.clone()).dead_letter().is_some());
    assert!(
        run_of([events, vec![lost(1)]].concat())
            .dead_letter()
            .is_some()
    );
}

#[test]
fn a_lease_dispels_the_suspicion() {
    let events = [undelivered(5), vec![leased(1, 1, 50), lost(1)]].concat();
    let run = run_of(events);
    assert_eq!((run.deliveries.counted, run.dead_letter()), (0, None));
    assert!(!run.is_suspected(&delivered(51).work));
}

#[test]
fn only_a_queued_run_is_delivered() {
    let events = recorded([launch(), leased(1, 1, 1), counted(46)]);
    let error = Run::replay(root(), events).expect_err("it has a lease");
    assert_eq!(error.reason, "only a queued run is delivered");
}
