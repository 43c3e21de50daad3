//! `aod runs`: what ran, how it went, and what it wrote.

use aod_api::events::{EventPage, EventView, LogLineView, LogPage};
use aod_api::runs::{CancelRun, RunPage, RunView, TreeNode};
use jiff::Timestamp;

use super::{history, rerun};
use crate::arguments::{
    CancelArguments, FollowArguments, RunArgument, RunsCommand, RunsLsArguments,
};
use crate::client::{Client, encoded, parsed};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Lines that the gateway gives at once; an ended run with more is read as a stream.
const LOG_LINES_AT_ONCE: usize = 10_000;

pub(super) async fn runs(command: RunsCommand, console: Console) -> Result<Exit, Failure> {
    match command {
        RunsCommand::At(arguments) => return history::at(&arguments, console).await,
        RunsCommand::Replay(arguments) => return history::replay(&arguments, console).await,
        RunsCommand::Diff(arguments) => return history::diff(&arguments, console).await,
        RunsCommand::Rerun(arguments) => return rerun::rerun(&arguments, console).await,
        RunsCommand::Ls(arguments) => list(&arguments, console).await,
        RunsCommand::Show(arguments) => show(&arguments, console).await,
        RunsCommand::Logs(arguments) => logs(&arguments, console).await,
        RunsCommand::Events(arguments) => events(&arguments, console).await,
        RunsCommand::Tree(arguments) => tree(&arguments, console).await,
        RunsCommand::Cancel(arguments) => cancel(&arguments, console).await,
    }?;
    Ok(Exit::Ok)
}

/// Where a run is on the gateway.
pub(super) fn path(run: &str, rest: &str) -> String {
    format!("/v1/runs/{}{rest}", encoded(run))
}

async fn list(arguments: &RunsLsArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let mut query = vec![("limit", arguments.limit.to_string())];
    query.extend(arguments.state.iter().map(|state| ("state", state.clone())));
    query.extend(
        arguments
            .capsule
            .iter()
            .map(|name| ("capsule", name.clone())),
    );
    query.extend(
        arguments
            .cursor
            .iter()
            .map(|cursor| ("cursor", cursor.clone())),
    );
    if arguments.roots {
        query.push(("roots", "true".to_owned()));
    }
    let page: RunPage = client.get("/v1/runs", &query).await?;
    console.show(&page, || text::table::runs(&page.items, Timestamp::now()))?;
    if let Some(next) = &page.next {
        console.tell(&format!("more: --cursor {next}"));
    }
    Ok(())
}

async fn show(arguments: &RunArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let view: RunView = client.get(&path(&arguments.run, ""), &[]).await?;
    console.show(&view, || text::run::details(&view))
}

async fn tree(arguments: &RunArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let tree: TreeNode = client.get(&path(&arguments.run, "/tree"), &[]).await?;
    console.show(&tree, || text::tree::draw(&tree, Timestamp::now()))
}

async fn cancel(arguments: &CancelArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let request = CancelRun {
        reason: arguments.reason.clone(),
    };
    let view: RunView = client
        .post(&path(&arguments.run, "/cancel"), &request)
        .await?;
    console.show(&view, || format!("{} is asked to end", view.summary.id))
}

async fn logs(arguments: &FollowArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let path = path(&arguments.run, "/logs");
    if arguments.follow {
        return follow_logs(&client, path, |line| show_line(console, line)).await;
    }
    let page: LogPage = client.get(&path, &[]).await?;
    if !page.is_live && page.items.len() >= LOG_LINES_AT_ONCE {
        return follow_logs(&client, path, |line| show_line(console, line)).await;
    }
    for line in &page.items {
        show_line(console, line)?;
    }
    Ok(())
}

fn show_line(console: Console, line: &LogLineView) -> Result<(), Failure> {
    // An empty line is one, too.
    console.show_line(line, || {
        if line.text.is_empty() {
            " ".to_owned()
        } else {
            line.text.clone()
        }
    })
}

/// Hands each line of a run on until it has ended.
pub(super) async fn follow_logs(
    client: &Client,
    path: String,
    mut each: impl FnMut(&LogLineView) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut lines = client.follow(path);
    loop {
        let event = lines.next().await?;
        if event.kind == "end" {
            return Ok(());
        }
        each(&parsed(&event.data)?)?;
    }
}

async fn events(arguments: &FollowArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let path = path(&arguments.run, "/events");
    let show = |event: &EventView| console.show_line(event, || text::event::line(event));
    if !arguments.follow {
        let page: EventPage = client.get(&path, &[]).await?;
        return page.items.iter().try_for_each(show);
    }
    let mut events = client.follow(path);
    loop {
        let event: EventView = parsed(&events.next().await?.data)?;
        show(&event)?;
        if text::event::is_result(&event) {
            return Ok(());
        }
    }
}
