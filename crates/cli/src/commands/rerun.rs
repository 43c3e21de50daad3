//! `aod runs rerun`: a recorded run once more.

use aod_api::runs::{RerunRun, RunView};

use super::run;
use super::runs::path;
use crate::arguments::{CallArguments, RerunArguments};
use crate::client::Client;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::signals::Signals;

pub(super) async fn rerun(arguments: &RerunArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let mut signals = Signals::listen()?;
    let launched = tokio::select! {
        launched = launch(&client, arguments) => launched?,
        () = signals.next() => return Err(Failure::new(Exit::Cancelled, "interrupted before the run was there")),
    };
    if arguments.detach {
        return run::tell_id(&launched, console);
    }
    let output_dir = arguments.output_dir.as_deref();
    run::follow(&client, &launched, output_dir, &mut signals, console).await
}

async fn launch(client: &Client, arguments: &RerunArguments) -> Result<RunView, Failure> {
    let mut request = RerunRun {
        from: arguments.from.clone(),
        fresh: arguments.fresh,
        ..RerunRun::default()
    };
    if !arguments.changes.is_empty() {
        let recorded: RunView = client.get(&path(&arguments.run, ""), &[]).await?;
        let changes = CallArguments {
            inputs: arguments.changes.clone(),
            ..CallArguments::default()
        };
        let inputs = run::inputs_for(client, &recorded.summary.capsule, &changes).await?;
        request.files = run::upload(client, &inputs).await?;
        request.arguments = inputs.arguments;
    }
    let key = uuid::Uuid::now_v7().to_string();
    let path = path(&arguments.run, "/rerun");
    Ok(client.post_patiently(&path, &key, &request).await?)
}
