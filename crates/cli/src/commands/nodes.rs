//! `aod nodes`: lists, drains and resumes nodes.

use std::fmt::Write as _;

use aod_api::nodes::{NodeList, NodeView};
use serde_json::json;

use crate::arguments::{ConnectArguments, DrainArguments, NodesCommand};
use crate::client::{Client, encoded};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

pub(super) async fn nodes(command: NodesCommand, console: Console) -> Result<Exit, Failure> {
    match command {
        NodesCommand::Ls(connect) => list(&connect, console).await,
        NodesCommand::Drain(arguments) => drain(&arguments, console).await,
    }?;
    Ok(Exit::Ok)
}

async fn list(connect: &ConnectArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(connect)?;
    let list: NodeList = client.get("/v1/nodes", &[]).await?;
    console.show(&list, || text::table::nodes(&list.items))
}

async fn drain(arguments: &DrainArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let action = if arguments.resume { "resume" } else { "drain" };
    let mut path = format!("/v1/nodes/{}/{action}", encoded(&arguments.node));
    if let Some(seconds) = arguments.within {
        let _ = write!(path, "?within={seconds}");
    }
    let node: NodeView = client.post(&path, &json!({})).await?;
    console.show(&node, || {
        let what = match (arguments.resume, arguments.within) {
            (true, _) => "takes runs again".to_owned(),
            (false, None) => "takes no new runs; its current runs continue".to_owned(),
            (false, Some(seconds)) => {
                format!("takes no new runs; returns unfinished runs to the queue after {seconds} s")
            }
        };
        format!("{} ({}) {what}", node.id, node.host)
    })
}
