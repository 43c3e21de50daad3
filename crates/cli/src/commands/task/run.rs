//! `aod task run`: registers the capsule of a workflow, runs it, and prints its outputs.

use std::fs;

use aod_api::runs::{CreateRun, RunResult, RunState};
use aod_domain::error_code::ErrorCode;
use aod_domain::task::tool::Catalogue;
use aod_domain::task::{self, Workflow};
use aod_kit::{TaskSource, pack, refuse};
use serde_json::{Map, Value};

use super::super::inputs::Inputs;
use super::super::progress::Progress;
use super::super::{capsule, run};
use super::workflow;
use crate::arguments::RunTaskArguments;
use crate::client::Client;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::signals::Signals;

pub(super) async fn run_task(
    arguments: &RunTaskArguments,
    console: Console,
) -> Result<Exit, Failure> {
    let shown = arguments.file.display().to_string();
    let outcome = workflow(&arguments.file, false)?;
    for warning in &outcome.warnings {
        console.tell(&format!("{warning} (warning)"));
    }
    let Some(workflow) = outcome.value else {
        let problems = outcome.problems.iter().map(ToString::to_string).collect();
        return Err(
            Failure::usage(format!("{shown} is not a valid workflow")).with_details(problems)
        );
    };
    let inputs = inputs(arguments, &workflow, console)?;
    let client = Client::connect(&arguments.connect)?;
    let capsule = register(&client, arguments, &workflow, console).await?;
    let mut signals = Signals::listen_except_hangup()?;
    let request = CreateRun {
        capsule,
        ..CreateRun::default()
    };
    let inputs = Inputs {
        arguments: inputs,
        files: Vec::new(),
    };
    let launched = run::launch(&client, request, inputs, None).await?;
    if arguments.detach {
        return run::tell_id(&launched, console);
    }
    let id = launched.summary.id.to_string();
    let progress = Progress::begin(&client, &launched.summary, console);
    let result = run::wait_or_cancel(&client, &id, &mut signals, |text| console.tell(text)).await;
    progress.end(result.is_ok()).await;
    match result {
        Ok(result) => finish(&result, console),
        Err(failure) => Err(of_waiting(failure)),
    }
}

/// The failure to wait for the end of a task: 3 and 5 have another meaning for tasks.
fn of_waiting(mut failure: Failure) -> Failure {
    failure.exit = match failure.exit {
        Exit::Cancelled => Exit::TaskCancelled,
        Exit::Unreachable | Exit::TimedOut => Exit::Environment,
        other => other,
    };
    failure
}

/// The inputs of the command line and of the file.
fn inputs(
    arguments: &RunTaskArguments,
    workflow: &Workflow,
    console: Console,
) -> Result<Map<String, Value>, Failure> {
    let mut problems = Vec::new();
    let mut texts = Vec::new();
    for input in &arguments.inputs {
        match input.split_once('=').filter(|(name, _)| !name.is_empty()) {
            Some((name, text)) => texts.push((name.to_owned(), text.to_owned())),
            None => problems.push(format!("--input {input:?}: expected NAME=VALUE")),
        }
    }
    let file = match &arguments.inputs_file {
        Some(path) => object(path)?,
        None => Map::new(),
    };
    let given = task::give(workflow, file, &texts);
    for warning in &given.warnings {
        console.tell(&format!("{warning} (warning)"));
    }
    problems.extend(given.problems);
    if problems.is_empty() {
        return Ok(given.values);
    }
    Err(Failure::usage("the inputs do not fit the workflow").with_details(problems))
}

fn object(path: &std::path::Path) -> Result<Map<String, Value>, Failure> {
    let failure = || Failure::usage(format!("the inputs in {} cannot be read", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failure().because(&error))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| failure().because(&error))?;
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(Failure::usage(format!(
            "{} does not contain a JSON object",
            path.display()
        ))),
    }
}

/// Registers the capsule of the workflow; returns its name.
async fn register(
    client: &Client,
    arguments: &RunTaskArguments,
    workflow: &Workflow,
    console: Console,
) -> Result<String, Failure> {
    let failure = || Failure::environment("the files of the task cannot be written");
    let directory = tempfile::tempdir().map_err(|error| failure().because(&error))?;
    let yaml = fs::read(&arguments.file).map_err(|error| failure().because(&error))?;
    let source = TaskSource {
        workflow,
        yaml: &yaml,
        catalogue: &Catalogue::default(),
        image: arguments.image.as_deref(),
    };
    let name = source.write(directory.path())?;
    refuse(&aod_kit::validate(directory.path())?)?;
    let package = pack(directory.path())?;
    let query = [("directory", name.to_string())];
    capsule::register(client, &package, &query, console).await?;
    Ok(name.to_string())
}

/// Prints the outputs.
fn finish(result: &RunResult, console: Console) -> Result<Exit, Failure> {
    let outputs = result
        .output
        .as_ref()
        .and_then(|output| output.get("outputs"));
    console.show(result, || {
        outputs.map_or_else(String::new, |outputs| format!("{outputs:#}"))
    })?;
    if result.success {
        return Ok(Exit::Ok);
    }
    let is_partial = result
        .error
        .as_ref()
        .is_some_and(|error| error.code == ErrorCode::TaskPartial.as_str());
    let exit = match result.state {
        _ if is_partial => Exit::Partial,
        RunState::Cancelled => Exit::TaskCancelled,
        RunState::TimedOut => Exit::TaskTimedOut,
        _ => Exit::RunFailed,
    };
    let mut failure = run::failed(result);
    failure.exit = exit;
    Err(failure)
}
