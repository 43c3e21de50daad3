//! A run that waits for admission: each admission launches it once, and it may return the admission while no node has
//! it.

use super::*;
use crate::flow::{Admission, RuleKey};

fn request() -> Event {
    let bucket = RuleKey {
        rule: "one".parse().expect("a name"),
        key: String::new(),
    };
    let admission = Admission {
        buckets: vec![bucket],
        ..Admission::default()
    };
    Event::Requested(Box::new(Launched {
        admission: Some(Box::new(admission)),
        ..launched()
    }))
}

fn admitted() -> Event {
    let launched = launched();
    Event::Admitted(Admitted {
        placement: launched.placement,
        memory_bytes: launched.resources.memory_bytes,
        cpu_millis: Some(launched.resources.cpu_millis),
    })
}

const fn returned(granted: u64) -> Event {
    Event::AdmissionReturned(Returned { granted })
}

const fn give_back(granted: u64) -> Command {
    Command::Return { granted }
}

#[test]
fn an_admission_launches_once() {
    let admit = |granted| Command::Admit { granted };
    check(&[request()], admit(5), &Ok(Some(admitted())));
    check(&[request(), admitted()], admit(5), &Ok(None));
    let history = [request(), admitted(), returned(5)];
    check(&history, admit(5), &Err(Rejection::NotAdmitted));
    check(&history, admit(4), &Err(Rejection::NotAdmitted));
    check(&history, admit(6), &Ok(Some(admitted())));
}

#[test]
fn untaken_run_returns_its_admission() {
    check(&[request()], give_back(5), &Err(Rejection::Held));
    let launched = [request(), admitted()];
    check(&launched, give_back(5), &Ok(Some(returned(5))));
    check(&[launch()], give_back(5), &Err(Rejection::Held));
    let history = [request(), admitted(), returned(5)];
    check(&history, give_back(5), &Ok(None));
    let again = [request(), admitted(), returned(5), admitted()];
    check(&again, give_back(5), &Ok(None));
    check(&again, give_back(7), &Ok(Some(returned(7))));
    let taken = [request(), admitted(), leased(1, 1, 1)];
    check(&taken, give_back(5), &Err(Rejection::Held));
    let ended = [request(), admitted(), leased(1, 1, 1), ended_event(1)];
    check(&ended, give_back(5), &Err(Rejection::Ended));
}

#[test]
fn run_between_two_attempts_returns_its_admission() {
    let between = vec![request(), admitted(), leased(1, 1, 1), lost(1)];
    check(&between, give_back(5), &Ok(Some(returned(5))));
    let history = [between, vec![returned(5)]].concat();
    let repeated = Command::LoseAttempt {
        attempt: 1,
        error: error(ErrorCode::RuntimeFailed),
    };
    check(&history, repeated, &Ok(None));
    let again = [history, vec![admitted()]].concat();
    check(&again, lease(node_holder(1, 2)), &Ok(Some(leased(2, 1, 2))));
}

#[test]
fn launch_of_a_returned_admission_starts_nothing() {
    let history = [request(), admitted(), returned(5)];
    let taken = lease(node_holder(1, 1));
    check(&history, taken.clone(), &Err(Rejection::NotAdmitted));
    assert_eq!(run_of(history).phase, Phase::Requested);
    let again = [request(), admitted(), returned(5), admitted()];
    check(&again, taken, &Ok(Some(leased(1, 1, 1))));
}
