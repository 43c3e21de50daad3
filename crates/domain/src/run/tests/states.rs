//! The states that users see.

use super::*;
use crate::run::NoteKind;

fn kind(attempt: u32) -> NoteKind {
    NoteKind {
        attempt,
        number: 1,
        callee: None,
        text: None,
        previous: None,
    }
}

fn state_of(history: &[Event], note: Option<&Note>) -> State {
    State::of(&run_of(history.iter().cloned()), note)
}

#[test]
fn run_without_lease_is_queued() {
    assert_eq!(state_of(&[launch()], None), State::Queued);
    let request = Event::Requested(Box::new(requested()));
    assert_eq!(state_of(&[request], None), State::Queued);
    let late = Note::CapsuleStarted(kind(1));
    let returned = [launch(), leased(1, 1, 1), lost(1)];
    assert_eq!(state_of(&returned, Some(&late)), State::Queued);
}

#[test]
fn note_of_current_attempt_determines_the_state() {
    let held = [launch(), leased(1, 1, 1)];
    let states = [
        (Note::PreparationStarted(kind(1)), State::Starting),
        (Note::CapsuleStarted(kind(1)), State::Running),
        (Note::WaitStarted(kind(1)), State::Waiting),
        (Note::WaitEnded(kind(1)), State::Running),
        (Note::CollectionStarted(kind(1)), State::Running),
        (Note::CapsuleStarted(kind(2)), State::Starting),
    ];
    assert_eq!(state_of(&held, None), State::Starting);
    for (note, expected) in states {
        assert_eq!(state_of(&held, Some(&note)), expected, "{note:?}");
    }
}

#[test]
fn ended_run_is_never_shown_as_running() {
    for (outcome, expected) in [
        (Outcome::Succeeded, State::Succeeded),
        (Outcome::Failed, State::Failed),
        (Outcome::TimedOut, State::TimedOut),
        (Outcome::Cancelled, State::Cancelled),
    ] {
        let end = Event::Ended(Box::new(Ended {
            outcome,
            ..ended(1)
        }));
        let late = Note::CollectionStarted(kind(1));
        let history = [launch(), leased(1, 1, 1), end];
        assert_eq!(state_of(&history, Some(&late)), expected);
    }
}
