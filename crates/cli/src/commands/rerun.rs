//! `aod runs rerun`: reruns a recorded run.

use aod_api::runs::{RerunRun, RunView};
use serde_json::Value;

use super::runs::path;
use super::{inputs, run};
use crate::arguments::RerunArguments;
use crate::client::{Client, ClientError};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::signals::Signals;

pub(super) async fn rerun(arguments: &RerunArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let mut signals = Signals::listen_except_hangup()?;
    let launched = tokio::select! {
        launched = launch(&client, arguments) => launched?,
        () = signals.next() => return Err(Failure::new(Exit::Cancelled, "interrupted before the run was created")),
    };
    if arguments.detach {
        return run::tell_id(&launched, console);
    }
    let output_dir = arguments.output.as_deref();
    run::follow(&client, &launched, output_dir, &mut signals, console).await
}

async fn launch(client: &Client, arguments: &RerunArguments) -> Result<RunView, Failure> {
    let run = client.run_id(&arguments.run).await?;
    let from = match &arguments.from {
        Some(from) => Some(client.run_id(from).await?.to_string()),
        None => None,
    };
    let mut request = RerunRun {
        from,
        fresh: arguments.fresh,
        ..RerunRun::default()
    };
    if !arguments.changes.is_empty() {
        let recorded: RunView = client.get(&path(run, ""), &[]).await?;
        let contract = match run::contract(client, &recorded.summary.capsule).await {
            // The capsule has been removed: the gateway checks the arguments against the recorded schema.
            Err(ClientError::Refused(problem)) if problem.code == "unknown_capsule" => None,
            contract => contract?,
        };
        let mut inputs = inputs::read(None, &arguments.changes, contract.as_ref())?;
        for change in &arguments.changes {
            if let Some((key, "null")) = change.split_once('=') {
                inputs.arguments.insert(key.to_owned(), Value::Null);
            }
        }
        request.files = run::upload(client, &inputs).await?;
        request.arguments = inputs.arguments;
    }
    let key = uuid::Uuid::now_v7().to_string();
    let path = path(run, "/rerun");
    Ok(client.post_patiently(&path, &key, &request).await?)
}
