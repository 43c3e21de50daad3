//! Shell completion: commands and flags from their definition, capsule names and run ids from the gateway.
//!
//! The gateway is the one of the environment (`AOD_URL` and so on), otherwise the running `aod up`. Without an answer of
//! the gateway there are no candidates.

use std::ffi::OsStr;
use std::time::Duration;

use aod_api::capsules::CapsuleList;
use aod_api::runs::RunPage;
use clap::{CommandFactory as _, Parser};
use clap_complete::env::{CompleteEnv, Shells};
use clap_complete::{ArgValueCompleter, CompletionCandidate};

use crate::arguments::{Arguments, ConnectArguments};
use crate::client::Client;
use crate::failure::Failure;
use crate::text::visible;

/// The variable by which the script of a shell asks for candidates; its value is the name of the shell.
const VARIABLE: &str = "AOD_COMPLETE";

/// The name of the program in shells.
const PROGRAM: &str = "aod";

/// Maximum time that a person waits for candidates.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum number of run ids, latest first.
const RUNS_MAX: usize = 50;

/// Answers a shell that asks for candidates, and ends the process; returns otherwise.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Arguments::command)
        .var(VARIABLE)
        .complete();
}

/// The script that makes `shell` ask this program for candidates.
pub(crate) fn script(shell: &str) -> Result<Vec<u8>, std::io::Error> {
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(shell) {
        shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    }
    Ok(script)
}

/// Completes the names of registered capsules.
pub(crate) fn capsules() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(current, &capsule_names))
}

/// Completes the ids of the latest runs.
pub(crate) fn runs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(current, &run_ids))
}

/// Connection flags of the environment.
#[derive(Debug, Parser)]
struct Environment {
    #[command(flatten)]
    connect: ConnectArguments,
}

/// The candidates of `find` that begin with `current`.
fn candidates(
    current: &OsStr,
    find: &impl AsyncFn(&Client, &str) -> Result<Vec<CompletionCandidate>, Failure>,
) -> Vec<CompletionCandidate> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let found = || {
        let current = current.to_str()?;
        let environment = Environment::try_parse_from([PROGRAM]).ok()?;
        let client = Client::connect(&environment.connect).ok()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .ok()?;
        let found = async { tokio::time::timeout(PATIENCE, find(&client, current)).await };
        let mut found = runtime.block_on(found).ok()?.ok()?;
        found.retain(|candidate| candidate.get_value().to_string_lossy().starts_with(current));
        Some(found)
    };
    found().unwrap_or_default()
}

async fn capsule_names(client: &Client, _: &str) -> Result<Vec<CompletionCandidate>, Failure> {
    let list: CapsuleList = client.get("/v1/capsules", &[]).await?;
    let names = list.items.into_iter();
    Ok(names
        .map(|capsule| {
            let help = capsule
                .title
                .map(|title| visible(&title).into_owned().into());
            CompletionCandidate::new(visible(&capsule.name).into_owned()).help(help)
        })
        .collect())
}

async fn run_ids(client: &Client, current: &str) -> Result<Vec<CompletionCandidate>, Failure> {
    let mut query = vec![("limit", RUNS_MAX.to_string())];
    // The id of a callee begins with the id of its root.
    if !current.contains('-') {
        query.push(("roots", "true".to_owned()));
    }
    if current.starts_with("run_") {
        query.push(("id", current.to_owned()));
    }
    let page: RunPage = client.get("/v1/runs", &query).await?;
    let runs = page.items.into_iter();
    let runs = runs.map(|run| {
        let help = format!("{} {}", run.capsule, run.state.as_str());
        CompletionCandidate::new(run.id.to_string()).help(Some(help.into()))
    });
    let last = CompletionCandidate::new("@last").help(Some("the latest root".into()));
    Ok(std::iter::once(last).chain(runs).collect())
}
