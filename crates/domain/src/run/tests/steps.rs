//! The ends of steps of a task.

use super::*;

/// A task whose first attempt has ended `count` steps.
fn task(count: u32) -> Vec<Event> {
    let steps = (1..=count).map(|number| step(1, number));
    [launch(), leased(1, 1, 1)]
        .into_iter()
        .chain(steps)
        .collect()
}

fn step(attempt: u32, number: u32) -> Event {
    Event::StepEnded(Box::new(step_ended(attempt, number)))
}

fn end_step(attempt: u32, number: u32) -> Command {
    Command::EndStep(Box::new(step_ended(attempt, number)))
}

#[test]
fn holder_ends_steps_one_after_the_other() {
    let history = task(2);
    assert_eq!(run_of(history.clone()).steps, 2);
    check(&history, end_step(1, 3), &Ok(Some(step(1, 3))));
    // The answer of the broker was lost.
    check(&history, end_step(1, 2), &Ok(None));
    check(&history, end_step(1, 4), &Err(Rejection::NotNextStep));
}

#[test]
fn attempt_that_was_taken_over_ends_no_step() {
    let mut history = task(1);
    history.push(leased(2, 2, 2));
    check(&history, end_step(1, 2), &Err(Rejection::Superseded));
    check(&history, end_step(2, 2), &Ok(Some(step(2, 2))));
    history.push(Event::Ended(Box::new(ended(2))));
    check(&history, end_step(2, 2), &Err(Rejection::Ended));
}

#[test]
fn task_has_a_maximum_of_steps() {
    let history = task(STEPS_MAX);
    let above = end_step(1, STEPS_MAX + 1);
    check(&history, above, &Err(Rejection::NotNextStep));
}

#[test]
fn steps_out_of_order_are_no_history() {
    for wrong in [step(1, 3), step(2, 2)] {
        let mut history = task(1);
        history.push(wrong);
        assert!(Run::replay(root(), recorded(history)).is_err());
    }
}
