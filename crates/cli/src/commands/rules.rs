//! `aod rules`: lists, sets and removes flow-control rules.

use aod_api::rules::{RuleList, RuleView, SetRule};

use crate::arguments::{ConnectArguments, RuleArgument, RulesCommand, SetRuleArguments};
use crate::client::{Client, encoded};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

pub(super) async fn rules(command: RulesCommand, console: Console) -> Result<Exit, Failure> {
    match command {
        RulesCommand::Ls(connect) => list(&connect, console).await,
        RulesCommand::Set(arguments) => set(&arguments, console).await,
        RulesCommand::Rm(arguments) => remove(&arguments, console).await,
    }?;
    Ok(Exit::Ok)
}

fn path(name: &str) -> String {
    format!("/v1/rules/{}", encoded(name))
}

async fn list(connect: &ConnectArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(connect)?;
    let list: RuleList = client.get("/v1/rules", &[]).await?;
    console.show(&list, || text::rule::table(&list.items))
}

async fn set(arguments: &SetRuleArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let rule: RuleView = client
        .put(&path(&arguments.name), &SetRule::from(arguments))
        .await?;
    console.show(&rule, || text::rule::sentence(&rule))
}

async fn remove(arguments: &RuleArgument, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    client.delete(&path(&arguments.name)).await?;
    console.tell(&format!("removed rule {}", arguments.name));
    Ok(())
}
