//! `aod deadletters`: lists, shows, requeues and purges dead-lettered runs.

use aod_api::dead_letters::{DeadLetterPage, DeadLetterView};
use aod_api::runs::RunView;
use aod_domain::id::RunId;
use jiff::Timestamp;
use serde_json::json;

use crate::arguments::{DeadLettersCommand, DeadLettersLsArguments, RunArgument};
use crate::client::Client;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

pub(super) async fn dead_letters(
    command: DeadLettersCommand,
    console: Console,
) -> Result<Exit, Failure> {
    match command {
        DeadLettersCommand::Ls(arguments) => list(&arguments, console).await,
        DeadLettersCommand::Show(arguments) => show(&arguments, console).await,
        DeadLettersCommand::Requeue(arguments) => requeue(&arguments, console).await,
        DeadLettersCommand::Purge(arguments) => purge(&arguments, console).await,
    }?;
    Ok(Exit::Ok)
}

/// The path of a dead letter at the gateway.
fn path(run: RunId, rest: &str) -> String {
    format!("/v1/deadletters/{run}{rest}")
}

async fn list(arguments: &DeadLettersLsArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let mut query = vec![("limit", arguments.limit.to_string())];
    if arguments.all {
        query.push(("all", "true".to_owned()));
    }
    let cursor = arguments.cursor.iter().cloned();
    query.extend(cursor.map(|cursor| ("cursor", cursor)));
    let page: DeadLetterPage = client.get("/v1/deadletters", &query).await?;
    console.show(&page, || {
        text::dead_letter::table(&page.items, Timestamp::now())
    })?;
    if let Some(next) = &page.next {
        console.tell(&format!("next page: --cursor {next}"));
    }
    Ok(())
}

async fn show(arguments: &RunArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let run = client.run_id(&arguments.run).await?;
    let view: DeadLetterView = client.get(&path(run, ""), &[]).await?;
    console.show(&view, || text::dead_letter::details(&view))
}

async fn requeue(arguments: &RunArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let path = path(client.run_id(&arguments.run).await?, "/requeue");
    let view: RunView = client.post(&path, &json!({})).await?;
    console.show(&view, || view.summary.id.to_string())
}

async fn purge(arguments: &RunArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let path = path(client.run_id(&arguments.run).await?, "/purge");
    let view: DeadLetterView = client.post(&path, &json!({})).await?;
    let state = view.summary.dead_letter.as_str();
    console.show(&view, || format!("{} is {state}", view.summary.run.id))
}
