//! `aod backup`: copies the data directory of `aod up`, also while it runs.

use crate::arguments::BackupArguments;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::data;
use crate::service::local::backup::back_up;

pub(super) async fn backup(arguments: &BackupArguments, console: Console) -> Result<Exit, Failure> {
    let data = data::directory(arguments.data.as_deref())?;
    let target = data::directory(Some(&arguments.directory))?;
    let is_running = back_up(&data, &target).await?;
    let state = if is_running { "running" } else { "stopped" };
    console.tell(&format!(
        "copied the {state} cluster of {} to {}",
        data.display(),
        target.display()
    ));
    if !data.join("artifacts").is_dir() {
        console.tell("the artifacts are in the store of --store: back up the store now");
    }
    Ok(Exit::Ok)
}
