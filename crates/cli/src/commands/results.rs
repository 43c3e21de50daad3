//! `aod runs wait` and `aod runs files`: results of runs that another command started.

use std::path::Path;

use aod_api::files::FileView;
use aod_api::runs::RunView;

use super::progress::Progress;
use super::run;
use super::runs::path;
use crate::arguments::{FilesArguments, WaitArguments};
use crate::client::Client;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::signals::Signals;
use crate::text;

/// Waits for the end of a run; a signal stops waiting and does not cancel the run.
pub(super) async fn wait(arguments: &WaitArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let mut signals = Signals::listen_except_hangup()?;
    let view = shown(&client, &arguments.run).await?;
    let id = view.summary.id.to_string();
    let progress = Progress::begin(&client, &view.summary, console);
    let result = tokio::select! {
        result = run::wait(&client, &id) => result,
        () = signals.next() => Err(run::interrupted(&id)),
    };
    progress.end(result.is_ok()).await;
    run::finish(&client, arguments.output.as_deref(), &result?, console).await
}

/// Fetches or lists the output files of a run.
pub(super) async fn files(arguments: &FilesArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let view = shown(&client, &arguments.run).await?;
    let id = view.summary.id;
    let result = view.result.ok_or_else(|| {
        let failure = Failure::usage(format!("the run {id} has not ended: it has no files yet"));
        failure.with_hint(format!("`aod runs wait {id}` waits for its end"))
    })?;
    if !arguments.list {
        fetch(&client, &result.files, &arguments.output).await?;
    }
    console.show(&result.files, || text::table::files(&result.files))?;
    if let Some(line) = run::files_line(&result.files, Some(&arguments.output))
        && !arguments.list
    {
        console.tell(&line);
    }
    Ok(Exit::Ok)
}

async fn shown(client: &Client, run: &str) -> Result<RunView, Failure> {
    let id = client.run_id(run).await?;
    Ok(client.get(&path(id, ""), &[]).await?)
}

/// Fetches `files` into `directory`.
pub(super) async fn fetch(
    client: &Client,
    files: &[FileView],
    directory: &Path,
) -> Result<(), Failure> {
    for file in files {
        client.download(file, directory).await?;
    }
    Ok(())
}
