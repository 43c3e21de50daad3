//! Dead letters.

use std::fmt::Write as _;

use aod_api::dead_letters::{DeadLetterState, DeadLetterSummary, DeadLetterView};
use jiff::Timestamp;

use super::{table, units};

/// Dead letters, the latest first, with ages at `now`.
pub(crate) fn table(letters: &[DeadLetterSummary], now: Timestamp) -> String {
    if letters.is_empty() {
        return "no dead letters".to_owned();
    }
    let mut table = table::plain(&["RUN", "CAPSULE", "REASON", "ATTEMPTS", "AGE", "STATE"]);
    for letter in letters {
        table.add_row([
            letter.run.id.to_string(),
            letter.run.capsule.clone(),
            letter.reason.as_str().to_owned(),
            letter.run.attempts.to_string(),
            units::between(letter.run.requested_at, now),
            state(letter),
        ]);
    }
    table::finish(&mut table)
}

fn state(letter: &DeadLetterSummary) -> String {
    match (letter.dead_letter, letter.requeued_as) {
        (DeadLetterState::Requeued, Some(run)) => format!("requeued as {run}"),
        (state, _) => state.as_str().to_owned(),
    }
}

/// All details of a dead letter.
pub(crate) fn details(view: &DeadLetterView) -> String {
    let run = &view.summary.run;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    line("run", &run.id.to_string());
    if let Some(parent) = run.parent {
        line("called by", &parent.to_string());
    }
    line("capsule", &run.capsule);
    line("state", &state(&view.summary));
    line("reason", view.summary.reason.as_str());
    if let Some(error) = &run.error {
        line("error", &format!("{} ({})", error.message, error.code));
    }
    line("deliveries", &view.deliveries.to_string());
    for attempt in &view.attempts {
        let node = attempt
            .node
            .map_or_else(|| "a gateway".to_owned(), |node| node.to_string());
        let end = attempt.error.as_ref().map_or_else(
            || "not ended".to_owned(),
            |error| format!("{} ({})", error.message, error.code),
        );
        let time = attempt.leased_at.strftime("%Y-%m-%d %H:%M:%SZ");
        line(
            &format!("attempt {}", attempt.attempt),
            &format!("{time} on {node}: {end}"),
        );
    }
    for written in &view.last_lines {
        let output = format!("output: {}", written.text);
        line(&format!("attempt {}", written.attempt), &output);
    }
    text
}
