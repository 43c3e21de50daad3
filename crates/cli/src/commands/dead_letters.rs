//! `aod deadletters`: which runs were given up, why, and what is done about them.

use aod_api::dead_letters::{DeadLetterPage, DeadLetterView};
use aod_api::runs::RunView;
use jiff::Timestamp;
use serde_json::json;

use crate::arguments::{DeadLettersCommand, DeadLettersLsArguments, RunArgument};
use crate::client::{Client, encoded};
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

/// Where a dead letter is on the gateway.
fn path(run: &str, rest: &str) -> String {
    format!("/v1/deadletters/{}{rest}", encoded(run))
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
        console.tell(&format!("more: --cursor {next}"));
    }
    Ok(())
}

async fn show(arguments: &RunArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let view: DeadLetterView = client.get(&path(&arguments.run, ""), &[]).await?;
    console.show(&view, || text::dead_letter::details(&view))
}

async fn requeue(arguments: &RunArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let path = path(&arguments.run, "/requeue");
    let view: RunView = client.post(&path, &json!({})).await?;
    console.show(&view, || view.summary.id.to_string())
}

async fn purge(arguments: &RunArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let path = path(&arguments.run, "/purge");
    let view: DeadLetterView = client.post(&path, &json!({})).await?;
    let state = view.summary.dead_letter.as_str();
    console.show(&view, || format!("{} is {state}", view.summary.run.id))
}
