//! `aod capsule push` and `pull`: capsules in registries, and in directories for clusters without a network. Labels of
//! the image contain the files of the capsule; a pulled capsule is a directory whose Dockerfile is one line.

mod pull;
mod push;

use std::path::PathBuf;
use std::sync::Arc;

use aod_artifacts::CacheConfig;
use aod_docker::exchange::Exchange;
use aod_ports::artifact_store::ArtifactStore;
use aod_registry::exchange::ExchangeError;
use aod_registry::reference::{Place, Reference};
use aod_registry::remote::authorization::Credentials;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::arguments::{PullArguments, PushArguments, RegistryArguments};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::docker;
use crate::service::signals::Signals;

/// The files of a capsule that its image contains as labels.
const SCHEMA_JSON: &str = "schema.json";
const AGENT_YAML: &str = "agent.yaml";
const TOOLS_YAML: &str = "tools.yaml";

pub(super) async fn push(arguments: &PushArguments, console: Console) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    unless_stopped(&stop, push::run(arguments, &stop, console)).await
}

pub(super) async fn pull(arguments: &PullArguments, console: Console) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    unless_stopped(&stop, pull::run(arguments, console)).await
}

/// Runs an exchange until its end, or until a signal; temporary files are removed in both cases.
async fn unless_stopped(
    stop: &CancellationToken,
    exchange: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let stopping = stop.clone();
    // In a task of its own, because an exchange may block its thread.
    let listening = tokio::spawn(async move {
        signals.next().await;
        stopping.cancel();
    });
    let ended = stop.run_until_cancelled(exchange).await;
    listening.abort();
    match ended {
        Some(ended) if ended.is_ok() || !stop.is_cancelled() => ended,
        _ => Err(Failure::new(Exit::Cancelled, "interrupted")),
    }
}

/// An artifact store for one exchange, in the directory for temporary files.
struct Store {
    artifacts: Arc<dyn ArtifactStore>,
    _directory: TempDir,
}

impl Store {
    fn open() -> Result<Self, Failure> {
        let unusable = || {
            let place = std::env::temp_dir();
            Failure::environment(format!("{} cannot be used", place.display()))
        };
        let directory = tempfile::tempdir().map_err(|error| unusable().because(&error))?;
        let cache = CacheConfig {
            directory: directory.path().to_owned(),
            bytes_max: 0,
        };
        let url = format!("file://{}", directory.path().display());
        let artifacts = aod_artifacts::open(&url, &cache);
        Ok(Self {
            artifacts: artifacts.map_err(|error| unusable().because(&error))?,
            _directory: directory,
        })
    }
}

fn place(reference: &str) -> Result<Place, Failure> {
    Place::parse(reference).map_err(|error| {
        let failure = Failure::usage(error.to_string());
        failure.with_hint("name an image in a registry, registry.example/team/words:1, or in a directory, oci:PATH:TAG")
    })
}

fn connect(arguments: &RegistryArguments) -> Result<Exchange, Failure> {
    let socket = docker::socket(&arguments.docker)?;
    let registries = arguments.registries.clone().or_else(usual_credentials);
    Exchange::connect(&socket, registries)
        .map_err(|error| docker::unusable(&arguments.docker, &error))
}

fn login(exchange: &Exchange, reference: &Reference) -> Result<Option<Credentials>, Failure> {
    exchange.credentials(reference).map_err(|error| {
        Failure::usage("the credentials for registries cannot be read").because(&error)
    })
}

/// The file that `docker login` writes, if it exists.
fn usual_credentials() -> Option<PathBuf> {
    let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    let path = directory.or_else(home)?.join("config.json");
    path.exists().then_some(path)
}

/// The failure of an exchange, by who can fix it.
fn failed(reference: &str, place: &Place, error: &ExchangeError) -> Failure {
    use ExchangeError::{
        Damaged, Denied, Disk, Layout, Missing, Silent, Store, TooLarge, Unreachable, Unusable,
    };
    let exit = match error {
        Missing { .. } | Layout { .. } | Unusable { .. } | TooLarge { .. } => Exit::Usage,
        _ => Exit::Environment,
    };
    let failure = Failure::new(exit, format!("the transfer of {reference} failed")).because(error);
    let hint = match (error, place) {
        (Denied { .. }, Place::Registry(reference)) => {
            let host = reference.registry();
            format!("run `docker login {host}`, or check the rights of this user there")
        }
        (Unreachable { .. } | Silent { .. }, _) => {
            "check the name of the registry and the network; a repeated push sends only what is missing".to_owned()
        }
        (Missing { .. }, _) => "check the name and the tag".to_owned(),
        (Damaged { .. }, Place::Layout { .. }) => {
            "copy the layout again from its source, or push the image into it again".to_owned()
        }
        (Damaged { .. }, Place::Registry(_)) => "push the image again".to_owned(),
        (Layout { .. }, _) => {
            "expected an OCI image layout; `aod capsule push` creates one in a new directory".to_owned()
        }
        (Disk { .. }, _) => "check the free space and the permissions there".to_owned(),
        (Store(_), _) => free_space(),
        _ => return failure,
    };
    failure.with_hint(hint)
}

/// The hint for a temporary artifact store that fails.
fn free_space() -> String {
    let place = std::env::temp_dir();
    format!(
        "free space in {}, or set TMPDIR to another directory",
        place.display()
    )
}
