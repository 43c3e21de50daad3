//! A node that cannot run its launch returns it, and another node may take it.

use uuid::Uuid;

use super::*;
use crate::id::NodeId;

fn refusal(attempt: u32, node: u128) -> Refused {
    Refused {
        attempt,
        node: NodeId::new(Uuid::from_u128(node)),
        error: error(ErrorCode::SecretMissing),
    }
}

#[test]
fn only_the_holder_refuses_and_that_costs_no_attempt() {
    let refused = refusal(1, 4);
    let event = Event::AttemptRefused(refused.clone());
    let command = || Command::Refuse(refused.clone());
    check(
        &[launch(), leased(1, 1, 1)],
        command(),
        &Ok(Some(event.clone())),
    );
    let history = [launch(), leased(1, 1, 1), event.clone()];
    check(&history, command(), &Ok(None));
    check(
        &[launch(), leased(1, 1, 1), leased(2, 2, 2)],
        command(),
        &Err(Rejection::Superseded),
    );
    check(
        &[launch(), leased(1, 1, 1), ended_event(1)],
        command(),
        &Err(Rejection::Ended),
    );
    let run = run_of(history.clone());
    assert_eq!(run.phase, Phase::Queued);
    assert_eq!((run.attempts, run.attempts_lost), (1, 0));
    assert_eq!(run.refusals, [refused]);
    check(
        &history,
        lease(node_holder(2, 2)),
        &Ok(Some(leased(2, 2, 2))),
    );
}

#[test]
fn run_waits_since_it_entered_the_queue() {
    let waits = |history: &[Event]| run_of(history.iter().cloned()).queued_at;
    assert!(waits(&[launch()]).is_some());
    assert_eq!(waits(&[launch(), leased(1, 1, 1)]), None);
    assert!(waits(&[launch(), leased(1, 1, 1), lost(1)]).is_some());
    let refused = Event::AttemptRefused(refusal(1, 4));
    assert!(waits(&[launch(), leased(1, 1, 1), refused]).is_some());
    assert_eq!(waits(&[Event::Requested(Box::new(requested()))]), None);
}
