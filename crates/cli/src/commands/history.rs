//! `aod runs at|replay|diff`: the past of trees.

use aod_api::history::{ReplayView, TreeAt, TreeDifference};

use super::runs::path;
use crate::arguments::{AtArguments, DiffArguments, RunArgument};
use crate::client::{Client, encoded};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

pub(super) async fn at(arguments: &AtArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let rest = format!("/at/{}", arguments.event);
    let tree: TreeAt = client.get(&path(&arguments.run, &rest), &[]).await?;
    console.show(&tree, || text::history::at(&tree))?;
    Ok(Exit::Ok)
}

pub(super) async fn replay(arguments: &RunArgument, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let view: ReplayView = client.get(&path(&arguments.run, "/replay"), &[]).await?;
    console.show(&view, || text::history::replay(&view))?;
    Ok(same(view.is_equal))
}

pub(super) async fn diff(arguments: &DiffArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let rest = format!("/diff/{}", encoded(&arguments.right));
    let view: TreeDifference = client.get(&path(&arguments.left, &rest), &[]).await?;
    console.show(&view, || text::history::difference(&view))?;
    Ok(same(view.is_same))
}

const fn same(is_same: bool) -> Exit {
    if is_same { Exit::Ok } else { Exit::Different }
}
