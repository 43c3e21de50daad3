//! `aod run`: a capsule from its arguments to its result and files.

use std::path::Path;

use aod_api::capsules::CapsuleView;
use aod_api::files::FileView;
use aod_api::runs::{CancelRun, CreateRun, GivenFile, RetriesView, RunResult, RunState, RunView};
use reqwest::StatusCode;
use serde_json::Value;

use super::inputs::{self, Inputs};
use super::progress::Progress;
use crate::arguments::{CallArguments, RunArguments};
use crate::client::{Client, ClientError, encoded};
use crate::console::{Console, Format};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::signals::Signals;
use crate::text;

/// How long one request waits for the result, in seconds: shorter than the silence after which an
/// answer is given up.
const WAIT_SECONDS: u64 = 60;

pub(super) async fn run(arguments: RunArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let inputs = inputs_for(&client, &arguments.capsule, &arguments.call).await?;
    let mut signals = Signals::listen()?;
    let request = CreateRun {
        capsule: arguments.capsule.clone(),
        label: arguments.label.clone(),
        require: arguments.require.require.clone(),
        devices: arguments.require.devices.iter().cloned().collect(),
        labels: arguments.labels.iter().cloned().collect(),
        priority: Some(arguments.priority).filter(|priority| *priority != 0),
        timeout_seconds: arguments.limits.timeout,
        deadline_seconds: arguments.limits.deadline,
        limits: arguments.limits.into(),
        budget: arguments.limits.into(),
        retries: RetriesView {
            capsule: arguments.retries,
            time: arguments.time_retries,
        },
        ..CreateRun::default()
    };
    let launched = tokio::select! {
        launched = launch(&client, request, inputs) => launched?,
        // Nothing was started, or nobody knows of it: a request that got through runs on.
        () = signals.next() => return Err(Failure::new(Exit::Cancelled, "interrupted before the run was there")),
    };
    if arguments.detach {
        return tell_id(&launched, console);
    }
    let output_dir = arguments.call.output_dir.as_deref();
    follow(&client, &launched, output_dir, &mut signals, console).await
}

/// Tells which run it is, for whoever does not wait.
pub(super) fn tell_id(launched: &RunView, console: Console) -> Result<Exit, Failure> {
    console.show(launched, || launched.summary.id.to_string())?;
    Ok(Exit::Ok)
}

/// Shows how far a run is until it has ended, and brings its files.
pub(super) async fn follow(
    client: &Client,
    launched: &RunView,
    output_dir: Option<&Path>,
    signals: &mut Signals,
    console: Console,
) -> Result<Exit, Failure> {
    let id = launched.summary.id.to_string();
    let progress = Progress::begin(client, &launched.summary, console);
    let tell = |text: &str| progress.tell(console, text);
    let result = wait_or_cancel(client, &id, signals, tell).await;
    progress.end().await;
    finish(client, output_dir, &result?, console).await
}

/// What was given, as the schema of `capsule` wants it.
pub(super) async fn inputs_for(
    client: &Client,
    capsule: &str,
    call: &CallArguments,
) -> Result<Inputs, Failure> {
    let path = format!("/v1/capsules/{}", encoded(capsule));
    let capsule: CapsuleView = client.get_patiently(&path).await?.1;
    let schema = capsule
        .schema
        .as_ref()
        .and_then(|schema| schema.get("input"));
    inputs::read(call.json.as_deref(), &call.inputs, schema)
}

/// Hands the files over and asks for the run.
pub(super) async fn launch(
    client: &Client,
    request: CreateRun,
    inputs: Inputs,
) -> Result<RunView, ClientError> {
    let request = CreateRun {
        files: upload(client, &inputs).await?,
        arguments: inputs.arguments,
        ..request
    };
    let key = uuid::Uuid::now_v7().to_string();
    client.post_patiently("/v1/runs", &key, &request).await
}

/// Hands the files over, to be named in a request.
pub(super) async fn upload(
    client: &Client,
    inputs: &Inputs,
) -> Result<Vec<GivenFile>, ClientError> {
    let mut files = Vec::new();
    for upload in &inputs.files {
        let stored = client.upload(upload).await?;
        files.push(GivenFile {
            name: upload.name.to_string(),
            file: stored.file,
        });
    }
    Ok(files)
}

/// Waits for the result; the first signal asks for the run to be cancelled, the second leaves it alone.
pub(super) async fn wait_or_cancel(
    client: &Client,
    id: &str,
    signals: &mut Signals,
    tell: impl Fn(&str),
) -> Result<RunResult, Failure> {
    tokio::select! {
        result = wait(client, id) => return result,
        () = signals.next() => tell("cancelling the run; Ctrl-C once more leaves it to itself"),
    }
    let cancel = async {
        let request = CancelRun {
            reason: "interrupted".to_owned(),
        };
        // Who comes too late finds the result.
        if let Err(error) = client
            .post::<RunView>(&format!("/v1/runs/{id}/cancel"), &request)
            .await
        {
            tracing::debug!(?error, "the run was not cancelled");
        }
        wait(client, id).await
    };
    tokio::select! {
        result = cancel => result,
        () = signals.next() => {
            let failure = Failure::new(Exit::Cancelled, format!("interrupted; {id} may still run"));
            Err(failure.with_hint(format!("`aod runs show {id}`, `aod runs cancel {id}`")))
        }
    }
}

/// Waits for the result, however long that takes and whichever gateway has it.
pub(super) async fn wait(client: &Client, id: &str) -> Result<RunResult, Failure> {
    let path = format!("/v1/runs/{id}/result?wait={WAIT_SECONDS}");
    loop {
        let (status, answer): (_, Value) = client.get_patiently(&path).await?;
        if status == StatusCode::OK {
            return serde_json::from_value(answer).map_err(|error| {
                Failure::new(Exit::Internal, "the result cannot be read").because(&error)
            });
        }
    }
}

pub(super) async fn finish(
    client: &Client,
    output_dir: Option<&Path>,
    result: &RunResult,
    console: Console,
) -> Result<Exit, Failure> {
    if let Some(directory) = output_dir {
        for file in &result.files {
            client.download(file, directory).await?;
        }
    }
    match console.format {
        Format::Json => console.show_json(result)?,
        Format::Text if result.success => console.show_json(&result.output)?,
        Format::Text => (),
    }
    if let Some(line) = files_line(&result.files, output_dir) {
        console.tell(&line);
    }
    if result.success {
        return Ok(Exit::Ok);
    }
    Err(failed(result))
}

fn files_line(files: &[FileView], output_dir: Option<&Path>) -> Option<String> {
    let size = text::units::bytes(files.iter().map(|file| file.size_bytes).sum());
    let count = match files.len() {
        0 => return None,
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    Some(match output_dir {
        Some(directory) => format!("{count} ({size}) in {}", directory.display()),
        None => format!("{count} ({size}) made; `-o DIR` brings them here"),
    })
}

/// The failure of a run that ended without success.
pub(super) fn failed(result: &RunResult) -> Failure {
    let id = result.id;
    let (code, message) = match &result.error {
        Some(error) => (error.code.as_str(), error.message.as_str()),
        None => (result.state.as_str(), "no reason is known"),
    };
    let failure = Failure::new(
        exit_of(result.state),
        format!(
            "the run {id} {}: {message} ({code})",
            text::units::state_words(result.state)
        ),
    );
    let details = result
        .error
        .as_ref()
        .and_then(|error| error.detail.as_ref())
        .map(text::problem::detail_lines);
    failure
        .with_details(details.unwrap_or_default())
        .with_hint(format!(
            "`aod runs logs {id}` prints what it wrote, `aod runs tree {id}` what it called"
        ))
}

/// With which code a command ends whose run ended so.
fn exit_of(state: RunState) -> Exit {
    match state {
        RunState::TimedOut => Exit::TimedOut,
        RunState::Cancelled => Exit::Cancelled,
        RunState::Succeeded => Exit::Ok,
        _ => Exit::RunFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_the_command_with_a_code_of_its_own() {
        let ended = RunState::ALL.into_iter().filter(|state| state.is_ended());
        let ended: Vec<_> = ended
            .map(|state| (state.as_str(), exit_of(state).code()))
            .collect();
        assert_eq!(
            ended,
            [
                ("succeeded", 0),
                ("failed", 1),
                ("timed_out", 4),
                ("cancelled", 5)
            ]
        );
    }
}
