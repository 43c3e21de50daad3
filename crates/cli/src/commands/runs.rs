//! `aod runs`: lists, shows, follows and cancels runs.

use aod_api::events::{EventPage, EventView};
use aod_api::runs::{CancelRun, RunPage, RunView, TreeNode};
use aod_domain::id::RunId;
use jiff::Timestamp;

use super::{history, logs, rerun, results};
use crate::arguments::{
    CancelArguments, FollowArguments, RunArgument, RunsCommand, RunsLsArguments,
};
use crate::client::{Client, parsed};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

pub(super) async fn runs(command: RunsCommand, console: Console) -> Result<Exit, Failure> {
    match command {
        RunsCommand::At(arguments) => return history::at(&arguments, console).await,
        RunsCommand::Replay(arguments) => return history::replay(&arguments, console).await,
        RunsCommand::Diff(arguments) => return history::diff(&arguments, console).await,
        RunsCommand::Rerun(arguments) => return rerun::rerun(&arguments, console).await,
        RunsCommand::Logs(arguments) => return logs::logs(&arguments, console).await,
        RunsCommand::Wait(arguments) => return results::wait(&arguments, console).await,
        RunsCommand::Files(arguments) => return results::files(&arguments, console).await,
        RunsCommand::Ls(arguments) => list(&arguments, console).await,
        RunsCommand::Show(arguments) => show(&arguments, console).await,
        RunsCommand::Events(arguments) => events(&arguments, console).await,
        RunsCommand::Tree(arguments) => tree(&arguments, console).await,
        RunsCommand::Cancel(arguments) => cancel(&arguments, console).await,
    }?;
    Ok(Exit::Ok)
}

/// The path of a run at the gateway.
pub(super) fn path(run: RunId, rest: &str) -> String {
    format!("/v1/runs/{run}{rest}")
}

async fn list(arguments: &RunsLsArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let mut query = vec![("limit", arguments.limit.to_string())];
    let mut add = |name: &'static str, values: &mut dyn Iterator<Item = String>| {
        query.extend(values.map(|value| (name, value)));
    };
    add("state", &mut arguments.state.iter().cloned());
    add("capsule", &mut arguments.capsule.iter().cloned());
    add("label", &mut arguments.label.iter().cloned());
    add("text", &mut arguments.text.iter().cloned());
    add(
        "since",
        &mut arguments.since.iter().map(ToString::to_string),
    );
    add(
        "until",
        &mut arguments.until.iter().map(ToString::to_string),
    );
    add("cursor", &mut arguments.cursor.iter().cloned());
    if arguments.roots {
        query.push(("roots", "true".to_owned()));
    }
    let page: RunPage = client.get("/v1/runs", &query).await?;
    console.show(&page, || text::table::runs(&page.items))?;
    if let Some(next) = &page.next {
        console.tell(&format!("next page: --cursor {next}"));
    }
    Ok(())
}

async fn show(arguments: &RunArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let run = client.run_id(&arguments.run).await?;
    let view: RunView = client.get(&path(run, ""), &[]).await?;
    console.show(&view, || text::run::details(&view))
}

async fn tree(arguments: &RunArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let run = client.run_id(&arguments.run).await?;
    let tree: TreeNode = client.get(&path(run, "/tree"), &[]).await?;
    console.show(&tree, || text::tree::draw(&tree, Timestamp::now()))
}

async fn cancel(arguments: &CancelArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let request = CancelRun {
        reason: arguments.reason.clone(),
    };
    let run = client.run_id(&arguments.run).await?;
    let view: RunView = client.post(&path(run, "/cancel"), &request).await?;
    console.show(&view, || format!("cancelling {}", view.summary.id))
}

async fn events(arguments: &FollowArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let path = path(client.run_id(&arguments.run).await?, "/events");
    let show = |event: &EventView| console.show_line(event, || text::event::line(event));
    if !arguments.follow {
        let mut after = 0;
        loop {
            let query = [("after", after.to_string())];
            let page: EventPage = client.get(&path, &query).await?;
            page.items.iter().try_for_each(show)?;
            let Some(next) = page.next else {
                return Ok(());
            };
            after = next;
        }
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
