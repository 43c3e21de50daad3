//! `aod retention`, `aod hold`, `aod gc`: how long artifacts are kept, what is held, and what goes.

use aod_api::retention::{
    Collect, CollectionLine, HoldList, HoldView, PolicyList, PolicyView, SetHold, SetPolicy,
};

use indicatif::ProgressBar;

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
            console.tell(&format!("policy {} is removed", arguments.name));
        }
    }
    Ok(Exit::Ok)
}

pub(super) async fn hold(command: HoldCommand, console: Console) -> Result<Exit, Failure> {
    let path = |run: &str| format!("/v1/holds/{}", encoded(run));
    match command {
        HoldCommand::Ls(connect) => {
            let list: HoldList = Client::connect(&connect)?.get("/v1/holds", &[]).await?;
            console.show(&list, || text::retention::holds(&list.items))?;
        }
        HoldCommand::Set(arguments) => {
            let client = Client::connect(&arguments.connect)?;
            let reason = arguments.reason.clone();
            let hold: HoldView = client
                .put(&path(&arguments.run), &SetHold { reason })
                .await?;
            console.show(&hold, || format!("the tree of {} is held", hold.run))?;
        }
        HoldCommand::Rm(arguments) => {
            let client = Client::connect(&arguments.connect)?;
            client.delete(&path(&arguments.run)).await?;
            console.tell(&format!(
                "the tree of {} is not held any more",
                arguments.run
            ));
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
    let bar = if console.is_interactive {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::hidden()
    };
    while let Some(line) = lines.next::<CollectionLine>().await? {
        match line {
            CollectionLine::Progress {
                found,
                events,
                removed,
            } => bar.set_message(format!(
                "{found} artifacts found, {events} events read, {removed} artifacts removed"
            )),
            CollectionLine::Problem(problem) => return Err(Failure::refused(&problem)),
            CollectionLine::Ended(collection) => {
                bar.finish_and_clear();
                console.show(&collection, || text::retention::collection(&collection))?;
                return Ok(match collection.failed {
                    0 => Exit::Ok,
                    _ => Exit::Environment,
                });
            }
        }
    }
    let text = "the gateway ended before it was done; what was collected until then is gone";
    Err(Failure::new(Exit::Unreachable, text).with_hint("ask again: it goes on where it was"))
}
