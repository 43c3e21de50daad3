//! `aod capsule run`: builds and runs a directory on this machine, in a temporary private cluster.

use std::time::Duration;

use aod_api::events::EventView;
use aod_api::runs::{CreateRun, RunView, TreeNode};
use aod_domain::capsule::Openness;
use aod_domain::contract::Contract;
use aod_kit::{Family, Source};
use jiff::Timestamp;
use tokio::time::timeout;

use crate::arguments::{CallArguments, CapsuleRunArguments};
use crate::client::Client;
use crate::commands::inputs::{self, Inputs};
use crate::commands::runs::path;
use crate::commands::{logs, run};
use crate::console::{Console, StatusLine};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::private::{ImageOrigin, Private, Told};
use crate::service::signals::Signals;
use crate::text;

/// Maximum time to print the remaining output after the end of the run.
const REST_PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run_here(
    arguments: &CapsuleRunArguments,
    console: Console,
) -> Result<Exit, Failure> {
    let directories = std::slice::from_ref(&arguments.directory);
    let family = Family::gather(directories, &arguments.with)?;
    for (caller, target) in &family.unknown {
        console.tell(&format!(
            "cannot find {target}, which {caller} may call: add the directory of {target} with --with DIR"
        ));
    }
    let inputs = inputs_of(&family.members[0], &arguments.call)?;
    // Signals wait while the cluster starts and stops, so that no part of it remains.
    let mut signals = Signals::listen()?;
    let status = console.status_line(family.members[0].name.as_str());
    status.set("starting a private cluster");
    let mut cluster = Private::start(&arguments.docker, &arguments.policy, None).await?;
    let outcome = tokio::select! {
        launched = launch(&cluster, &family, arguments.openness.openness(), inputs, &status, console) => launched,
        () = signals.next() => {
            Err(Failure::new(Exit::Cancelled, "interrupted before the run was created"))
        }
    };
    let run = match outcome {
        Ok(run) => run,
        Err(failure) => {
            cluster.end(false).await?;
            return Err(failure);
        }
    };
    let outcome = wait(&mut cluster, run, arguments, &mut signals, &status, console).await;
    status.remove();
    let hint = match cluster.end(arguments.keep).await? {
        None => "use --keep to keep the data for inspection".to_owned(),
        Some(directory) => {
            let directory = directory.display();
            console.tell(&format!("kept: {directory}"));
            format!("inspect with `aod up --data {directory}` and `aod runs ls --data {directory}`")
        }
    };
    outcome.map_err(|failure| failure.with_hint(hint))
}

/// The arguments of the call, read with the capsule's contract before the cluster starts.
fn inputs_of(source: &Source, call: &CallArguments) -> Result<Inputs, Failure> {
    let contract = Contract::parse(&source.schema_json).ok();
    inputs::read(call.json.as_deref(), &call.inputs, contract.as_ref())
}

/// Registers the capsules and requests the run.
async fn launch(
    cluster: &Private,
    family: &Family,
    openness: Openness,
    inputs: Inputs,
    status: &StatusLine,
    console: Console,
) -> Result<RunView, Failure> {
    for source in &family.members {
        let tell = |told: Told<'_>| told.show(status, console);
        cluster
            .register(source, ImageOrigin::Built, openness, tell)
            .await?;
    }
    let request = CreateRun {
        capsule: family.members[0].name.to_string(),
        ..CreateRun::default()
    };
    Ok(run::launch(cluster.client(), request, inputs, None).await?)
}

async fn wait(
    cluster: &mut Private,
    launched: RunView,
    arguments: &CapsuleRunArguments,
    signals: &mut Signals,
    status: &StatusLine,
    console: Console,
) -> Result<Exit, Failure> {
    let client = cluster.client().clone();
    let id = launched.summary.id.to_string();
    let telling = tokio::spawn(tell_of(client.clone(), launched, status.clone(), console));
    let result = tokio::select! {
        result = run::wait_or_cancel(&client, &id, signals, |text| console.tell(text)) => result?,
        failure = cluster.watch() => return Err(failure),
    };
    // The last output may arrive after the result.
    let _ = timeout(REST_PATIENCE, telling).await;
    let tree: TreeNode = client.get(&format!("/v1/runs/{id}/tree"), &[]).await?;
    if !tree.children.is_empty() {
        console.tell(text::tree::draw(&tree, Timestamp::now()).trim_end());
    }
    run::finish(&client, arguments.call.output.as_deref(), &result, console).await
}

/// Prints the progress and the output of a run until the run ends.
async fn tell_of(client: Client, run: RunView, status: StatusLine, console: Console) {
    let (id, name) = (run.summary.id, run.summary.capsule);
    let lines = async {
        let each = |line: &aod_api::events::LogLineView| {
            console.tell(&format!("  {}", line.text));
        };
        if let Err(failure) = logs::follow(&client, id, each).await {
            tracing::debug!(?failure, "cannot follow the output of the run");
        }
    };
    let events = async {
        let mut events = client.follow(path(id, "/events"));
        while let Ok(event) = events.next().await {
            let Ok(event) = serde_json::from_str::<EventView>(&event.data) else {
                continue;
            };
            let short = text::event::short(&event);
            console.tell(&format!("{name}: {short}"));
            status.set(&short);
            if text::event::is_result(&event) {
                return;
            }
        }
    };
    tokio::join!(lines, events);
}
