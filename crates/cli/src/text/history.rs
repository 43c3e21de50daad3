//! The history of trees: a tree at an event, the comparison of lists and log, and the difference of two trees.

use std::fmt::Write as _;

use aod_api::history::{
    OneSidedRun, PlaceDifference, ReplayView, RunDifference, TreeAt, TreeAtNode, TreeDifference,
};
use aod_domain::id::RunId;
use aod_domain::spending::Cost;
use comfy_table::CellAlignment;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{event, table, tree, units};

/// Maximum number of printed characters of a value.
const VALUE_LENGTH_MAX: usize = 60;

/// A tree at an event.
pub(crate) fn at(view: &TreeAt) -> String {
    let last = &view.last;
    let what = format!(
        "{}, {} at {}",
        event::word(&last.kind),
        last.run,
        last.time.strftime("%Y-%m-%d %H:%M:%S%.3fZ")
    );
    let headline = if last.sequence == view.event {
        format!("as of event {}: {what}", view.event)
    } else {
        let (event, sequence) = (view.event, last.sequence);
        format!("as of event {event} (last event of this tree: {sequence}): {what}")
    };
    let mut drawing = table::plain(&[
        "CAPSULE",
        "STATE",
        "ATTEMPTS",
        "TOOK",
        "HOLDER",
        "WAITS FOR",
        "RUN",
    ]);
    let row = |node: &TreeAtNode, branch: &str| row_at(node, branch, last.time);
    tree::add(&mut drawing, &view.tree, &|node| &node.children, &row);
    if let Some(column) = drawing.column_mut(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{headline}\n{}", table::finish(&mut drawing))
}

fn row_at(node: &TreeAtNode, branch: &str, now: Timestamp) -> Vec<String> {
    let run = &node.run;
    let attempts = match node.attempts_lost {
        0 => run.attempts.to_string(),
        lost => format!("{}, {lost} lost", run.attempts),
    };
    let mut state = tree::state(run);
    if node.cancel.is_some() && run.ended_at.is_none() {
        state.push_str(", being cancelled");
    }
    vec![
        format!("{branch}{}", run.capsule),
        state,
        attempts,
        units::between(run.requested_at, run.ended_at.unwrap_or(now)),
        node.holder.clone().unwrap_or_default(),
        node.waits_for.clone().unwrap_or_default(),
        run.id.to_string(),
    ]
}

/// The differences between the lists and the log.
pub(crate) fn replay(view: &ReplayView) -> String {
    let what = format!(
        "{}: {}, {}, up to event {}",
        view.root,
        units::count(view.runs, "run"),
        units::count(view.events, "event"),
        view.as_of
    );
    if view.is_equal {
        return format!("{what}\nequal: the lists of this gateway match the log");
    }
    let total = view.differences.len() + view.left_out;
    let mut drawing = table::plain(&["RUN", "PLACE", "LOG", "LISTS"]);
    for found in &view.differences {
        let place = if found.place.is_empty() {
            "(the run)"
        } else {
            &found.place
        };
        drawing.add_row([
            found.run.clone(),
            place.to_owned(),
            shown(found.log.as_ref()),
            shown(found.read_model.as_ref()),
        ]);
    }
    let mut text = format!(
        "{what}\nnot equal: the lists of this gateway differ from the log in {}\n{}",
        units::count(total, "place"),
        table::finish(&mut drawing)
    );
    left_out(&mut text, view.left_out);
    text
}

/// The differences of two trees.
pub(crate) fn difference(view: &TreeDifference) -> String {
    let different = view.runs.iter().filter(|run| !run.differences.is_empty());
    let different: Vec<&RunDifference> = different.collect();
    let verdict = if view.is_same {
        "equal except for times and costs".to_owned()
    } else {
        let one_sided = view.only_left.len() + view.only_right.len();
        format!(
            "different: {}, without a counterpart: {one_sided}",
            different.len()
        )
    };
    let mut text = format!(
        "A  {}\nB  {}\n{} compared: {verdict}\n",
        view.left,
        view.right,
        units::count(view.compared, "run")
    );
    for run in different {
        let _ = write!(text, "\n{}{}\n", run.path, ids(view, run));
        let mut drawing = table::plain(&["  PLACE", "A", "B"]);
        for found in &run.differences {
            let place = format!("  {}", found.place);
            drawing.add_row([
                place,
                shown(found.left.as_ref()),
                shown(found.right.as_ref()),
            ]);
        }
        let _ = writeln!(text, "{}", table::finish(&mut drawing));
    }
    one_sided(&mut text, "A", &view.only_left);
    one_sided(&mut text, "B", &view.only_right);
    measures(&mut text, &view.runs);
    left_out(&mut text, view.left_out);
    text
}

/// The ids of a pair of callees; the first lines contain the ids of the roots.
fn ids(view: &TreeDifference, run: &RunDifference) -> String {
    let is_root = |(root, run): (RunId, RunId)| root == run;
    if is_root((view.left, run.left)) && is_root((view.right, run.right)) {
        return String::new();
    }
    format!("  {}  {}", run.left, run.right)
}

fn one_sided(text: &mut String, side: &str, runs: &[OneSidedRun]) {
    for one in runs {
        let below = match one.below {
            0 => String::new(),
            below => format!(", with {below} below it"),
        };
        let _ = writeln!(text, "\nonly in {side}: {}  {}{below}", one.path, one.run);
    }
}

/// Times and costs of all runs, where the printed figures differ.
fn measures(text: &mut String, runs: &[RunDifference]) {
    let mut drawing = table::plain(&["TIMES AND COSTS", "", "A", "B"]);
    let mut is_empty = true;
    for run in runs {
        for found in &run.measures {
            let name = found.place.trim_start_matches('/');
            let [left, right] = sides(found).map(|value| figure(name, value));
            if left != right {
                is_empty = false;
                let name = name.trim_end_matches("_ms").trim_end_matches("_usd");
                drawing.add_row([run.path.clone(), name.replace('_', " "), left, right]);
            }
        }
    }
    if is_empty {
        return;
    }
    for index in [2, 3] {
        if let Some(column) = drawing.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(text, "\n{}", table::finish(&mut drawing));
}

fn sides(found: &PlaceDifference) -> [Option<&Value>; 2] {
    [found.left.as_ref(), found.right.as_ref()]
}

/// A time, an amount of money, or a number.
fn figure(name: &str, value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    let milliseconds = value.as_i64().filter(|_| name.ends_with("_ms"));
    let dollars = value.as_f64().filter(|_| name.ends_with("_usd"));
    match (milliseconds, dollars.and_then(Cost::from_dollars)) {
        (Some(milliseconds), _) => units::duration(SignedDuration::from_millis(milliseconds)),
        (_, Some(cost)) => cost.to_string(),
        _ => value.to_string(),
    }
}

/// A value as JSON on one line, shortened to [`VALUE_LENGTH_MAX`]; `-` for none.
fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    let text = value.to_string();
    if text.chars().count() <= VALUE_LENGTH_MAX {
        return text;
    }
    let cut: String = text.chars().take(VALUE_LENGTH_MAX - 1).collect();
    format!("{cut}…")
}

fn left_out(text: &mut String, left_out: usize) {
    if left_out > 0 {
        let _ = write!(text, "\nand {left_out} more");
    }
}
