//! `aod runs logs`: the output of one run, or of all runs of a tree.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use aod_api::events::{LogLineView, LogPage};
use aod_api::runs::{RunSummary, TreeNode};
use aod_domain::id::RunId;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::mpsc;

use super::runs::path;
use crate::arguments::LogsArguments;
use crate::client::{Client, Follow, parsed};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Maximum lines of one write to the terminal.
const LINES_IN_WRITE_MAX: usize = 1_000;

/// Interval between checks of a tree for new runs.
const TREE_INTERVAL: Duration = Duration::from_secs(1);

/// Batches of lines that the readers of a tree may be ahead of the terminal.
const BATCHES_AHEAD: usize = 16;

/// The lines to print.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    tail: Option<usize>,
    since: Option<Timestamp>,
}

impl Wanted {
    fn since(self, mut lines: Vec<LogLineView>) -> Vec<LogLineView> {
        lines.retain(|line| self.since.is_none_or(|since| line.at >= since));
        lines
    }

    /// Adds `lines` to the last lines so far.
    fn keep<T>(self, kept: &mut VecDeque<T>, lines: impl IntoIterator<Item = T>) {
        kept.extend(lines);
        let excess = kept.len().saturating_sub(self.tail.unwrap_or(usize::MAX));
        kept.drain(..excess);
    }
}

pub(super) async fn logs(arguments: &LogsArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let run = client.run_id(&arguments.run).await?;
    let wanted = Wanted {
        tail: arguments.tail,
        since: arguments.since,
    };
    if arguments.tree {
        let mut places = BTreeMap::new();
        if !arguments.follow || wanted.tail.is_some() {
            places = tree_so_far(&client, run, wanted, console).await?;
        }
        if arguments.follow {
            follow_tree(&client, run, places, wanted, console).await?;
        }
        return Ok(Exit::Ok);
    }
    let mut after = String::new();
    if !arguments.follow || wanted.tail.is_some() {
        after = one_so_far(&client, run, wanted, console).await?;
    }
    if arguments.follow {
        let each = |lines| show(console, &wanted.since(lines));
        follow_after(&client, run, after, each).await?;
    }
    Ok(Exit::Ok)
}

async fn one_so_far(
    client: &Client,
    run: RunId,
    wanted: Wanted,
    console: Console,
) -> Result<String, Failure> {
    let mut kept = VecDeque::new();
    let last = so_far(client, run, |lines| {
        let lines = wanted.since(lines);
        if wanted.tail.is_none() {
            return show(console, &lines);
        }
        wanted.keep(&mut kept, lines);
        Ok(())
    });
    let last = last.await?;
    show(console, kept.make_contiguous())?;
    Ok(last)
}

/// Calls `each` with the lines so far; returns the place of the last one.
async fn so_far(
    client: &Client,
    run: RunId,
    mut each: impl FnMut(Vec<LogLineView>) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let mut after = String::new();
    loop {
        let query = Some(("after", after.clone())).filter(|(_, after)| !after.is_empty());
        let page: LogPage = client.get(&path(run, "/logs"), query.as_slice()).await?;
        if let Some(last) = page.items.last() {
            after = format!("{}.{}", last.attempt, last.number);
        }
        each(page.items)?;
        if page.next.is_none() {
            return Ok(after);
        }
        if !page.is_live {
            // Reads the rest of the log once; each page reads it from its beginning.
            return follow_after(client, run, after, each).await;
        }
    }
}

fn show(console: Console, lines: &[LogLineView]) -> Result<(), Failure> {
    console.show_lines(lines, |line| text_of(console, line))
}

/// The line for people on a terminal, otherwise as the capsule wrote it.
fn text_of(console: Console, line: &LogLineView) -> String {
    if console.is_terminal {
        text::log::line(line)
    } else {
        line.text.clone()
    }
}

/// Calls `each` with the output lines of a run as they arrive, until the run ends.
pub(super) async fn follow(
    client: &Client,
    run: RunId,
    mut each: impl FnMut(&LogLineView),
) -> Result<(), Failure> {
    let each = |lines: Vec<LogLineView>| {
        lines.iter().for_each(&mut each);
        Ok(())
    };
    follow_after(client, run, String::new(), each).await?;
    Ok(())
}

/// Calls `each` with the lines after the place `after` as they arrive, until the run ends; returns the last place.
async fn follow_after(
    client: &Client,
    run: RunId,
    after: String,
    mut each: impl FnMut(Vec<LogLineView>) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let mut events = client.follow(path(run, "/logs")).after(after);
    loop {
        let (lines, is_end) = arrived(&mut events).await?;
        each(lines)?;
        if is_end {
            return Ok(events.last_id().to_owned());
        }
    }
}

/// The lines that have arrived, at least one before the end.
async fn arrived(events: &mut Follow) -> Result<(Vec<LogLineView>, bool), Failure> {
    let mut lines = Vec::new();
    let mut next = Some(events.next().await?);
    while let Some(event) = next {
        if event.kind == "end" {
            return Ok((lines, true));
        }
        lines.push(parsed(&event.data)?);
        let is_full = lines.len() >= LINES_IN_WRITE_MAX;
        next = if is_full { None } else { events.ready() };
    }
    Ok((lines, false))
}

/// A line of a run in a tree.
#[derive(Debug, Serialize)]
struct TreeLine {
    run: RunId,
    capsule: String,
    #[serde(flatten)]
    line: LogLineView,
}

impl TreeLine {
    fn of(run: &RunSummary, line: LogLineView) -> Self {
        Self {
            run: run.id,
            capsule: run.capsule.clone(),
            line,
        }
    }

    fn show(lines: &[Self], console: Console) -> Result<(), Failure> {
        console.show_lines(lines, |line| {
            let (id, text) = (text::log::short_id(line.run), text_of(console, &line.line));
            format!("{} {id}  {text}", line.capsule)
        })
    }
}

/// The lines of all runs of a tree, in the order of their times; returns the place of the last line of each run.
async fn tree_so_far(
    client: &Client,
    root: RunId,
    wanted: Wanted,
    console: Console,
) -> Result<BTreeMap<RunId, String>, Failure> {
    let tree: TreeNode = client.get(&path(root, "/tree"), &[]).await?;
    let mut all = Vec::new();
    let mut places = BTreeMap::new();
    for run in runs_of(&tree) {
        let mut kept = VecDeque::new();
        let place = so_far(client, run.id, |lines| {
            let lines = wanted.since(lines).into_iter();
            wanted.keep(&mut kept, lines.map(|line| TreeLine::of(run, line)));
            Ok(())
        });
        places.insert(run.id, place.await?);
        all.extend(kept);
    }
    all.sort_by_key(|line| line.line.at);
    let mut kept = VecDeque::new();
    wanted.keep(&mut kept, all);
    TreeLine::show(kept.make_contiguous(), console)?;
    Ok(places)
}

/// Prints lines after `places` as they arrive, of runs that exist and of runs that start later, until the run `root`
/// ends.
async fn follow_tree(
    client: &Client,
    root: RunId,
    mut places: BTreeMap<RunId, String>,
    wanted: Wanted,
    console: Console,
) -> Result<(), Failure> {
    let (sender, mut batches) = mpsc::channel(BATCHES_AHEAD);
    // Dropped when the root has ended: then the lines end with the last reader.
    let mut sender = Some(sender);
    let mut known = BTreeSet::new();
    let mut ticks = tokio::time::interval(TREE_INTERVAL);
    loop {
        tokio::select! {
            batch = batches.recv() => match batch {
                Some(batch) => {
                    let (run, lines): (RunSummary, _) = batch?;
                    let lines = wanted.since(lines).into_iter();
                    let lines: Vec<_> = lines.map(|line| TreeLine::of(&run, line)).collect();
                    TreeLine::show(&lines, console)?;
                }
                None => return Ok(()),
            },
            _ = ticks.tick(), if sender.is_some() => {
                let tree: TreeNode = client.get(&path(root, "/tree"), &[]).await?;
                for run in runs_of(&tree) {
                    if let Some(sender) = sender.as_ref().filter(|_| known.insert(run.id)) {
                        let place = places.remove(&run.id).unwrap_or_default();
                        let events = client.follow(path(run.id, "/logs")).after(place);
                        tokio::spawn(read(events, run.clone(), sender.clone()));
                    }
                }
                // A run ends after all runs below it.
                sender = sender.filter(|_| !tree.run.state.is_ended());
            }
        }
    }
}

/// The lines of a run that have arrived, or the failure that prevents it.
type Batch = Result<(RunSummary, Vec<LogLineView>), Failure>;

/// Sends each line of a run, or the failure that prevents it.
async fn read(mut events: Follow, run: RunSummary, sender: mpsc::Sender<Batch>) {
    loop {
        let (batch, is_last) = match arrived(&mut events).await {
            Ok((lines, is_end)) => (Ok((run.clone(), lines)), is_end),
            Err(failure) => (Err(failure), true),
        };
        // Without a receiver, the command has failed already.
        if sender.send(batch).await.is_err() || is_last {
            return;
        }
    }
}

/// A run and all runs below it, callers first.
fn runs_of(tree: &TreeNode) -> Vec<&RunSummary> {
    let mut found = vec![&tree.run];
    found.extend(tree.children.iter().flat_map(runs_of));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(number: u64) -> LogLineView {
        let at = format!("2026-03-01T12:00:{number:02}Z");
        let line =
            json!({"attempt": 1, "number": number, "at": at, "output": "stdout", "text": ""});
        serde_json::from_value(line).expect("a line")
    }

    #[test]
    fn tail_keeps_the_last_lines_of_several_pages_since_the_time() {
        let wanted = Wanted {
            tail: Some(3),
            since: Some(line(2).at),
        };
        let numbers = |pages: &[std::ops::Range<u64>]| {
            let mut kept = VecDeque::new();
            for page in pages {
                wanted.keep(&mut kept, wanted.since(page.clone().map(line).collect()));
            }
            kept.iter().map(|line| line.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&[1..5, 5..7]), [4, 5, 6]);
        assert_eq!(numbers(&[1..3, 3..4]), [2, 3]);
        assert!(numbers(&[0..1, 1..2]).is_empty());
    }
}
