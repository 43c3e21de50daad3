//! `aod retention`, `aod hold`, `aod gc`: retention policies, holds and garbage collection.

use aod_api::retention::{
    Collect, CollectionLine, HoldList, HoldView, PolicyList, PolicyView, SetHold, SetPolicy,
};
use aod_domain::id::RunId;

use crate::arguments::{CollectArguments, HoldCommand, RetentionCommand};
use crate::client::{Client, encoded};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

pub(super) async fn retention(
    command: RetentionCommand,
    console: Console,
) -> Result<Exit, Failure> {
    let path = |name: &str| format!("/v1/retention/{}", encoded(name));
    match command {
        RetentionCommand::Ls(connect) => {
            let list: PolicyList = Client::connect(&connect)?.get("/v1/retention", &[]).await?;
            console.show(&list, || text::retention::policies(&list.items))?;
        }
        RetentionCommand::Set(arguments) => {
            let client = Client::connect(&arguments.connect)?;
            let body = SetPolicy::from(&arguments);
            let policy: PolicyView = client.put(&path(&arguments.name), &body).await?;
            console.show(&policy, || text::retention::sentence(&policy))?;
        }
        RetentionCommand::Rm(arguments) => {
            let client = Client::connect(&arguments.connect)?;
            client.delete(&path(&arguments.name)).await?;
            console.tell(&format!("removed policy {}", arguments.name));
        }
    }
    Ok(Exit::Ok)
}

pub(super) async fn hold(command: HoldCommand, console: Console) -> Result<Exit, Failure> {
    let path = |run: RunId| format!("/v1/holds/{run}");
    match command {
        HoldCommand::Ls(connect) => {
            let list: HoldList = Client::connect(&connect)?.get("/v1/holds", &[]).await?;
            console.show(&list, || text::retention::holds(&list.items))?;
        }
        HoldCommand::Set(arguments) => {
            let client = Client::connect(&arguments.connect)?;
            let reason = arguments.reason.clone();
            let run = client.run_id(&arguments.run).await?;
            let hold: HoldView = client.put(&path(run), &SetHold { reason }).await?;
            console.show(&hold, || format!("the tree of {} is held", hold.run))?;
        }
        HoldCommand::Rm(arguments) => {
            let client = Client::connect(&arguments.connect)?;
            let run = client.run_id(&arguments.run).await?;
            client.delete(&path(run)).await?;
            console.tell(&format!("removed the hold on the tree of {run}"));
        }
    }
    Ok(Exit::Ok)
}

pub(super) async fn collect(
    arguments: &CollectArguments,
    console: Console,
) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let dry_run = arguments.dry_run;
    let mut lines = client.post_lines("/v1/gc", &Collect { dry_run }).await?;
    let status = console.status_line("gc");
    while let Some(line) = lines.next::<CollectionLine>().await? {
        match line {
            CollectionLine::Progress {
                found,
                events,
                removed,
            } => status.set(&format!(
                "{found} artifacts found, {events} events read, {removed} artifacts deleted"
            )),
            CollectionLine::Problem(problem) => return Err(Failure::refused(&problem)),
            CollectionLine::Ended(collection) => {
                status.remove();
                console.show(&collection, || text::retention::collection(&collection))?;
                return Ok(match collection.failed {
                    0 => Exit::Ok,
                    _ => Exit::Environment,
                });
            }
        }
    }
    let text = "the gateway stopped before the garbage collection was complete";
    Err(Failure::new(Exit::Unreachable, text).with_hint("run `aod gc` again to continue"))
}
