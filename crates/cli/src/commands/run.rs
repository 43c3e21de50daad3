//! `aod run`: runs a capsule, and fetches its result and files.

use std::path::Path;

use aod_api::capsules::CapsuleView;
use aod_api::files::FileView;
use aod_api::runs::{CancelRun, CreateRun, GivenFile, RetriesView, RunResult, RunState, RunView};
use aod_domain::contract::Contract;
use aod_domain::error_code::ErrorCode;
use reqwest::StatusCode;
use serde_json::Value;

use super::inputs::{self, Inputs};
use super::progress::Progress;
use super::results;
use crate::arguments::RunArguments;
use crate::client::{Client, ClientError, encoded};
use crate::console::{Console, Format};
use crate::exit::Exit;
use crate::failure::{Failure, remedy};
use crate::service::signals::Signals;
use crate::text;

/// Time that one request waits for the result, in seconds: less than the client's read timeout.
const WAIT_SECONDS: u64 = 60;

pub(super) async fn run(arguments: RunArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let contract = contract(&client, &arguments.capsule).await?;
    let call = &arguments.call;
    let inputs = inputs::read(call.json.as_deref(), &call.inputs, contract.as_ref())?;
    let mut signals = Signals::listen_except_hangup()?;
    let request = CreateRun {
        capsule: arguments.capsule.clone(),
        pool: arguments.pool.clone(),
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
        launched = launch(&client, request, inputs, arguments.idempotency_key) => launched?,
        // If the gateway has already received the request, the run continues.
        () = signals.next() => return Err(Failure::new(Exit::Cancelled, "interrupted before the run was created")),
    };
    if arguments.detach {
        return tell_id(&launched, console);
    }
    let output_dir = arguments.call.output.as_deref();
    follow(&client, &launched, output_dir, &mut signals, console).await
}

/// Prints the id of a run, for a command that does not wait.
pub(super) fn tell_id(launched: &RunView, console: Console) -> Result<Exit, Failure> {
    console.show(launched, || launched.summary.id.to_string())?;
    Ok(Exit::Ok)
}

/// Shows the progress of a run until the run ends, and fetches its files.
pub(super) async fn follow(
    client: &Client,
    launched: &RunView,
    output_dir: Option<&Path>,
    signals: &mut Signals,
    console: Console,
) -> Result<Exit, Failure> {
    let id = launched.summary.id.to_string();
    let progress = Progress::begin(client, &launched.summary, console);
    let tell = |text: &str| console.tell(text);
    let result = wait_or_cancel(client, &id, signals, tell).await;
    progress.end(result.is_ok()).await;
    finish(client, output_dir, &result?, console).await
}

/// The contract of a registered capsule.
pub(super) async fn contract(
    client: &Client,
    capsule: &str,
) -> Result<Option<Contract>, ClientError> {
    let path = format!("/v1/capsules/{}", encoded(capsule));
    let capsule: CapsuleView = client.get_patiently(&path).await?.1;
    let schema = capsule.schema.map(|schema| schema.to_string());
    Ok(schema.and_then(|schema| Contract::parse(schema.as_bytes()).ok()))
}

/// Uploads the files and requests the run; without `key`, the run is a new one.
pub(super) async fn launch(
    client: &Client,
    request: CreateRun,
    inputs: Inputs,
    key: Option<String>,
) -> Result<RunView, ClientError> {
    let request = CreateRun {
        files: upload(client, &inputs).await?,
        arguments: inputs.arguments,
        ..request
    };
    let key = key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    client.post_patiently("/v1/runs", &key, &request).await
}

/// Uploads the files for a request.
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

/// Waits for the result; the first signal cancels the run, the second stops waiting.
pub(super) async fn wait_or_cancel(
    client: &Client,
    id: &str,
    signals: &mut Signals,
    tell: impl Fn(&str),
) -> Result<RunResult, Failure> {
    tokio::select! {
        result = wait(client, id) => return result,
        () = signals.next() => tell("cancelling the run; press Ctrl-C again to stop waiting"),
    }
    let cancel = async {
        let request = CancelRun {
            reason: "interrupted".to_owned(),
        };
        // If the run has already ended, the result is available.
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
        () = signals.next() => Err(interrupted(id)),
    }
}

/// The command does not wait for the run any more.
pub(super) fn interrupted(id: &str) -> Failure {
    let failure = Failure::new(Exit::Cancelled, format!("interrupted; {id} may still run"));
    failure.with_hint(format!(
        "`aod runs wait {id}` waits for it, `aod runs cancel {id}` cancels it"
    ))
}

/// Waits for the result without a limit, from any gateway.
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
        results::fetch(client, &result.files, directory).await?;
    }
    match console.format {
        Format::Json => console.show_json(result)?,
        Format::Text if result.success => console.show_json(&result.output)?,
        Format::Text => (),
    }
    if let Some(line) = files_line(&result.files, output_dir) {
        console.tell(&line);
    }
    for line in result.left_out.iter().flat_map(text::run::left_out) {
        console.tell(&format!("left out: {line}"));
    }
    if result.success {
        return Ok(Exit::Ok);
    }
    Err(failed(result))
}

/// The number of files, with the directory that contains them or the command that fetches them.
pub(super) fn files_line(files: &[FileView], output_dir: Option<&Path>) -> Option<String> {
    let size = text::units::bytes(files.iter().map(|file| file.size_bytes).sum());
    let count = match files.len() {
        0 => return None,
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    Some(match output_dir {
        Some(directory) => format!("{count} ({size}) in {}", directory.display()),
        None => {
            format!("{count} ({size}) created; fetch them with `-o DIR`, or with `aod runs files`")
        }
    })
}

/// The failure of a run that ended without success.
pub(super) fn failed(result: &RunResult) -> Failure {
    let id = result.id;
    let (code, message) = match &result.error {
        Some(error) => (error.code.as_str(), error.message.as_str()),
        None => (result.state.as_str(), "unknown reason"),
    };
    let failure = Failure::new(
        exit_of(result.state),
        format!(
            "the run {id} {}: {message} ({code})",
            text::units::state_words(result.state)
        ),
    );
    let detail = result
        .error
        .as_ref()
        .and_then(|error| error.detail.as_ref());
    let details = detail.map(|detail| text::problem::detail_lines(detail, message));
    let hint = match ErrorCode::named(code) {
        Some(code) => remedy(code, Some(id)),
        // The code is the capsule's own.
        None => format!("`aod runs logs {id}` prints its output, `aod runs tree {id}` its callees"),
    };
    failure
        .with_details(details.unwrap_or_default())
        .with_hint(hint)
}

/// The exit code for the state of an ended run.
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
    fn state_of_an_ended_run_determines_the_exit_code() {
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
