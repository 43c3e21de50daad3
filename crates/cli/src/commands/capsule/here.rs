//! `aod capsule run`: a directory, built and run on this machine alone.

use std::time::Duration;

use aod_api::events::EventView;
use aod_api::runs::{CreateRun, RunView, TreeNode};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::timeout;

use crate::arguments::{CallArguments, CapsuleRunArguments};
use crate::capsule::{Family, Source};
use crate::client::Client;
use crate::commands::inputs::{self, Inputs};
use crate::commands::{run, runs};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::private::{ImageOrigin, Private};
use crate::service::signals::Signals;
use crate::text;

/// How long what a run wrote may still be told of after its end.
const REST_PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run_here(
    arguments: &CapsuleRunArguments,
    console: Console,
) -> Result<Exit, Failure> {
    let directories = std::slice::from_ref(&arguments.directory);
    let family = Family::gather(directories, &arguments.with)?;
    for (caller, target) in &family.unknown {
        console.tell(&format!(
            "{target}, which {caller} may call, is not here: --with DIR says where"
        ));
    }
    let inputs = inputs_of(&family.members[0], &arguments.call)?;
    // Until it is there, and while it ends, a signal waits: nothing may be left.
    let mut signals = Signals::listen()?;
    let mut cluster = Private::start(&arguments.docker, &arguments.policy, None).await?;
    let outcome = tokio::select! {
        launched = launch(&cluster, &family, inputs, console) => launched,
        () = signals.next() => {
            Err(Failure::new(Exit::Cancelled, "interrupted before the run was there"))
        }
    };
    let run = match outcome {
        Ok(run) => run,
        Err(failure) => {
            cluster.end(false).await?;
            return Err(failure);
        }
    };
    let outcome = wait(&mut cluster, run, arguments, &mut signals, console).await;
    let hint = match cluster.end(arguments.keep).await? {
        None => "with --keep all of it can be looked at afterwards".to_owned(),
        Some(directory) => {
            let directory = directory.display();
            console.tell(&format!("kept: {directory}"));
            format!("`aod up --data {directory}`, then `aod runs ls --data {directory}` and so on")
        }
    };
    outcome.map_err(|failure| failure.with_hint(hint))
}

/// What was given, as the capsule's schema wants it; read before anything starts.
fn inputs_of(source: &Source, call: &CallArguments) -> Result<Inputs, Failure> {
    let schema: Option<Value> = serde_json::from_slice(&source.schema_json).ok();
    let schema = schema.as_ref().and_then(|schema| schema.get("input"));
    inputs::read(call.json.as_deref(), &call.inputs, schema)
}

/// Makes the capsules callable and asks for the run.
async fn launch(
    cluster: &Private,
    family: &Family,
    inputs: Inputs,
    console: Console,
) -> Result<RunView, Failure> {
    for source in &family.members {
        let tell = |text: &str| console.tell(text);
        cluster.register(source, ImageOrigin::Built, tell).await?;
    }
    let request = CreateRun {
        capsule: family.members[0].name.to_string(),
        ..CreateRun::default()
    };
    Ok(run::launch(cluster.client(), request, inputs).await?)
}

async fn wait(
    cluster: &mut Private,
    launched: RunView,
    arguments: &CapsuleRunArguments,
    signals: &mut Signals,
    console: Console,
) -> Result<Exit, Failure> {
    let client = cluster.client().clone();
    let id = launched.summary.id.to_string();
    let telling = tokio::spawn(tell_of(client.clone(), launched, console));
    let result = tokio::select! {
        result = run::wait_or_cancel(&client, &id, signals, |text| console.tell(text)) => result?,
        failure = cluster.watch() => return Err(failure),
    };
    // What was written last may come after the result.
    let _ = timeout(REST_PATIENCE, telling).await;
    let tree: TreeNode = client.get(&format!("/v1/runs/{id}/tree"), &[]).await?;
    if !tree.children.is_empty() {
        console.tell(text::tree::draw(&tree, Timestamp::now()).trim_end());
    }
    run::finish(
        &client,
        arguments.call.output_dir.as_deref(),
        &result,
        console,
    )
    .await
}

/// Tells how far a run is, and what it writes, until it has ended.
async fn tell_of(client: Client, run: RunView, console: Console) {
    let (id, name) = (run.summary.id.to_string(), run.summary.capsule);
    let lines = async {
        let path = format!("/v1/runs/{id}/logs");
        let each = |line: &aod_api::events::LogLineView| {
            console.tell(&format!("  {}", line.text));
            Ok(())
        };
        if let Err(failure) = runs::follow_logs(&client, path, each).await {
            tracing::debug!(?failure, "what the run wrote cannot be followed");
        }
    };
    let events = async {
        let mut events = client.follow(format!("/v1/runs/{id}/events"));
        while let Ok(event) = events.next().await {
            let Ok(event) = serde_json::from_str::<EventView>(&event.data) else {
                continue;
            };
            console.tell(&format!("{name}: {}", text::event::short(&event)));
            if text::event::is_result(&event) {
                return;
            }
        }
    };
    tokio::join!(lines, events);
}
