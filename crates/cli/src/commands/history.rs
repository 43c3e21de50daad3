//! `aod runs at|replay|diff`: past states of trees.

use aod_api::history::{ReplayView, TreeAt, TreeDifference};

use super::runs::path;
use crate::arguments::{AtArguments, DiffArguments, RunArgument};
use crate::client::Client;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

pub(super) async fn at(arguments: &AtArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let rest = format!("/at/{}", arguments.event);
    let run = client.run_id(&arguments.run).await?;
    let tree: TreeAt = client.get(&path(run, &rest), &[]).await?;
    console.show(&tree, || text::history::at(&tree))?;
    Ok(Exit::Ok)
}

pub(super) async fn replay(arguments: &RunArgument, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let run = client.run_id(&arguments.run).await?;
    let view: ReplayView = client.get(&path(run, "/replay"), &[]).await?;
    console.show(&view, || text::history::replay(&view))?;
    Ok(same(view.is_equal))
}

pub(super) async fn diff(arguments: &DiffArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let left = client.run_id(&arguments.left).await?;
    let right = client.run_id(&arguments.right).await?;
    let rest = format!("/diff/{right}");
    let view: TreeDifference = client.get(&path(left, &rest), &[]).await?;
    console.show(&view, || text::history::difference(&view))?;
    Ok(same(view.is_same))
}

const fn same(is_same: bool) -> Exit {
    if is_same { Exit::Ok } else { Exit::Different }
}
