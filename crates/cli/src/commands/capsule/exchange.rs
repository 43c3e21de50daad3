//! `aod capsule push` and `pull`: capsules in registries, and in directories for clusters without a network. Labels of
//! the image contain the files of the capsule; a pulled capsule is a directory whose Dockerfile is one line.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_artifacts::CacheConfig;
use aod_docker::exchange::Exchange;
use aod_domain::digest::Digest;
use aod_domain::manifest::CapsuleName;
use aod_kit::{Package, Source};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::RuntimeError;
use aod_registry::exchange::{ExchangeError, Parts};
use aod_registry::labels::{AGENT, CapsuleLabels, SCHEMA, TOOLS};
use aod_registry::layout::{self, Layout, Watch};
use aod_registry::reference::{Place, Reference};
use aod_registry::remote::Remote;
use aod_registry::remote::authorization::Credentials;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::packed;
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

/// Maximum size of all labels, in bytes: the URL of a request to the engine contains them. Source: Go's
/// `http.DefaultMaxHeaderBytes` is 1 MiB, and a byte of text may take three bytes in a URL.
const LABELS_BYTES_MAX: usize = 300 * 1024;

/// Maximum buffered output lines of a build.
const LINES_QUEUED: usize = 256;

/// The tag of an image that is pushed into a layout without a tag.
const TAG_DEFAULT: &str = "latest";

/// The registry in the names of images that came from a layout. Names that end in `.invalid` never exist (RFC 2606): an
/// engine without the image cannot pull another one of the same name.
const PULLED: &str = "aod-pulled.invalid";

/// Length of a digest in such a name.
const DIGITS: usize = 12;

pub(super) async fn push(arguments: &PushArguments, console: Console) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    unless_stopped(&stop, run_push(arguments, &stop, console)).await
}

pub(super) async fn pull(arguments: &PullArguments, console: Console) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    unless_stopped(&stop, run_pull(arguments, console)).await
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

async fn run_push(
    arguments: &PushArguments,
    stop: &CancellationToken,
    console: Console,
) -> Result<(), Failure> {
    let place = place(&arguments.reference)?;
    let source = Source::read(&arguments.directory)?;
    let labels = labels_of(&source)?;
    let package = packed(&arguments.directory, console)?;
    let exchange = connect(&arguments.registry)?;
    let failed = |error: &ExchangeError| failed(&arguments.reference, &place, error);
    let target = Target::open(&place, &exchange)?;
    target.check().await.map_err(|error| failed(&error))?;
    let store = Store::open()?;
    let parts = build(&exchange, &source.name, &package, labels, &store, console).await?;
    let digest = target.push(&parts, stop, console).await;
    let digest = digest.map_err(|error| failed(&error))?;
    let reference = target.reference(digest);
    let name = source.name.as_str();
    let report = json!({
        "capsule": name,
        "reference": reference,
        "digest": format!("sha256:{digest}"),
    });
    console.show(&report, || reference.clone())
}

/// Builds the image, and stores its parts in `store`.
async fn build(
    exchange: &Exchange,
    name: &CapsuleName,
    package: &Package,
    labels: HashMap<String, String>,
    store: &Store,
    console: Console,
) -> Result<Parts, Failure> {
    let (progress, mut lines) = mpsc::channel::<String>(LINES_QUEUED);
    let context = package.file.path();
    let building = exchange.build(context, name, labels, &store.artifacts, progress);
    let showing = async {
        while let Some(line) = lines.recv().await {
            console.tell(&format!("  {line}"));
        }
    };
    let (built, ()) = tokio::join!(building, showing);
    let failed = || Failure::environment(format!("the image of {name} cannot be built"));
    let image = built.map_err(|error| match &error {
        RuntimeError::BuildFailed { last_lines, .. } => {
            failed().because(&error).with_details(last_lines.clone())
        }
        RuntimeError::Store(_) => failed().because(&error).with_hint(free_space()),
        _ => failed().because(&error),
    })?;
    let parts = Parts::of(&image, &store.artifacts).await;
    parts.map_err(|error| failed().because(&error))
}

/// Where a push goes.
enum Target<'a> {
    Registry(&'a Reference, Box<Remote>),
    Layout(&'a Path, &'a str),
}

impl<'a> Target<'a> {
    fn open(place: &'a Place, exchange: &Exchange) -> Result<Self, Failure> {
        match place {
            Place::Registry(reference) if reference.is_exact() => {
                let failure = Failure::usage("a push needs a tag, not a digest");
                Err(failure.with_hint("name the image as in registry.example/team/words:1"))
            }
            Place::Registry(reference) => {
                let remote = Remote::for_push(reference.clone(), login(exchange, reference)?);
                let remote = remote.map_err(|error| failed(reference.registry(), place, &error))?;
                Ok(Self::Registry(reference, Box::new(remote)))
            }
            Place::Layout { path, tag } => {
                Ok(Self::Layout(path, tag.as_deref().unwrap_or(TAG_DEFAULT)))
            }
        }
    }

    /// Reports before a long build what would fail after it.
    async fn check(&self) -> Result<(), ExchangeError> {
        match self {
            Self::Registry(_, remote) => remote.check().await,
            Self::Layout(path, _) => layout::check(path),
        }
    }

    async fn push(
        &self,
        parts: &Parts,
        stop: &CancellationToken,
        console: Console,
    ) -> Result<Digest, ExchangeError> {
        let progress = move |line: String| console.tell(&format!("  {line}"));
        match self {
            Self::Registry(_, remote) => remote.push(parts, &progress).await,
            Self::Layout(path, tag) => tokio::task::block_in_place(|| {
                let watch = Watch {
                    progress: &progress,
                    is_stopped: &|| stop.is_cancelled(),
                };
                layout::add(path, tag, parts, &watch)
            }),
        }
    }

    /// What `pull` takes.
    fn reference(&self, digest: Digest) -> String {
        match self {
            Self::Registry(reference, _) => reference.at(digest),
            Self::Layout(path, tag) => format!("oci:{}:{tag}", path.display()),
        }
    }
}

async fn run_pull(arguments: &PullArguments, console: Console) -> Result<(), Failure> {
    let place = place(&arguments.reference)?;
    let failed = |error: &ExchangeError| failed(&arguments.reference, &place, error);
    let exchange = connect(&arguments.registry)?;
    let (pulled, image) = match &place {
        Place::Registry(reference) => {
            let login = login(&exchange, reference)?;
            let remote = Remote::for_pull(reference.clone(), login.clone());
            let remote = remote.map_err(|error| failed(&error))?;
            let found = remote.find().await.map_err(|error| failed(&error))?;
            let exact = reference.at(found.digest);
            let pulled = Pulled::of(found.labels, arguments)?;
            let fetched = exchange.pull(&exact, login.as_ref()).await;
            fetched.map_err(|error| unfetched(&arguments.reference, &error))?;
            (pulled, exact)
        }
        Place::Layout { path, tag } => {
            let layout = Layout::open(path).map_err(|error| failed(&error))?;
            let found = layout.find(tag.as_deref()).await;
            let found = found.map_err(|error| failed(&error))?;
            let pulled = Pulled::of(found.labels.clone(), arguments)?;
            let store = Store::open()?;
            let image = layout.copy(&found, &store.artifacts).await;
            let image = image.map_err(|error| failed(&error))?;
            let digits = &found.manifest_digest.to_string()[..DIGITS];
            let local = format!("{PULLED}/{}:{digits}", pulled.name);
            let loaded = exchange.load(&image, &local, &store.artifacts).await;
            loaded.map_err(|error| unfetched(&arguments.reference, &error))?;
            (pulled, local)
        }
    };
    let directory = &pulled.directory;
    pulled.write(&image).map_err(|error| {
        Failure::environment(format!("{} cannot be written", directory.display())).because(&error)
    })?;
    let shown = directory.display().to_string();
    let report = json!({"capsule": pulled.name, "reference": image, "directory": shown});
    console.show(&report, || shown.clone())
}

/// A capsule that becomes a directory.
struct Pulled {
    name: CapsuleName,
    schema: String,
    labels: CapsuleLabels,
    directory: PathBuf,
}

impl Pulled {
    /// Checks that the image has a capsule, and that its directory can be created.
    fn of(labels: CapsuleLabels, arguments: &PullArguments) -> Result<Self, Failure> {
        let name = labels.name.as_deref().map(CapsuleName::parse);
        let (Some(Ok(name)), Some(schema)) = (name, labels.schema.clone()) else {
            let reference = &arguments.reference;
            let text = format!("{reference} was not pushed by `aod capsule push`");
            return Err(Failure::usage(text).with_hint(
                "for other images, create a directory with a Dockerfile (`FROM IMAGE`) and a schema.json",
            ));
        };
        let directory = arguments.directory.clone();
        let directory = directory.unwrap_or_else(|| PathBuf::from(name.as_str()));
        if fs::symlink_metadata(&directory).is_ok() {
            let text = format!("{} exists", directory.display());
            return Err(
                Failure::usage(text).with_hint("name another directory, or remove this one")
            );
        }
        Ok(Self {
            name,
            schema,
            labels,
            directory,
        })
    }

    /// Creates the directory beside its place; a rename makes it appear.
    fn write(&self, image: &str) -> io::Result<()> {
        let parent = match self.directory.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let stage = TempDir::with_prefix_in(".aod-", parent)?;
        // Its place gets the mode that other new directories have.
        let content = stage.path().join("content");
        fs::create_dir(&content)?;
        fs::write(content.join("Dockerfile"), format!("FROM {image}\n"))?;
        fs::write(content.join(SCHEMA_JSON), &self.schema)?;
        let optional = [
            (AGENT_YAML, &self.labels.agent),
            (TOOLS_YAML, &self.labels.tools),
        ];
        for (file, text) in optional {
            if let Some(text) = text {
                fs::write(content.join(file), text)?;
            }
        }
        fs::rename(&content, &self.directory)
    }
}

fn labels_of(source: &Source) -> Result<HashMap<String, String>, Failure> {
    let mut agent = source.agent_yaml.clone().unwrap_or_default();
    if source.agent.name.is_none() {
        // The name follows from the directory, which may have another name after a pull.
        agent.splice(0..0, format!("name: {}\n", source.name).into_bytes());
    }
    let texts = [
        (SCHEMA, Some(&source.schema_json)),
        (AGENT, Some(&agent)),
        (TOOLS, source.tools_yaml.as_ref()),
    ];
    let texts = texts.into_iter().filter_map(|(label, text)| {
        let text = String::from_utf8_lossy(text?).into_owned();
        Some((label.to_owned(), text))
    });
    let labels: HashMap<String, String> = texts.collect();
    let bytes: usize = labels.values().map(String::len).sum();
    if bytes > LABELS_BYTES_MAX {
        let text = format!(
            "{SCHEMA_JSON}, {AGENT_YAML} and {TOOLS_YAML} have {bytes} bytes together; expected at most {LABELS_BYTES_MAX}, \
             because they become labels of the image"
        );
        return Err(Failure::usage(text));
    }
    Ok(labels)
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

/// The failure of the engine to get an image that exists.
fn unfetched(reference: &str, error: &RuntimeError) -> Failure {
    let failure = Failure::environment(format!("Docker cannot load the image of {reference}"));
    failure.because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulled(labels: CapsuleLabels, directory: &Path) -> Result<Pulled, Failure> {
        let arguments = PullArguments {
            reference: "oci:images:1".to_owned(),
            directory: Some(directory.to_owned()),
            registry: RegistryArguments {
                registries: None,
                docker: String::new(),
            },
        };
        Pulled::of(labels, &arguments)
    }

    fn labels(name: &str) -> CapsuleLabels {
        CapsuleLabels {
            name: Some(name.to_owned()),
            schema: Some("{}".to_owned()),
            agent: Some("name: words\n".to_owned()),
            tools: None,
        }
    }

    #[test]
    fn pulled_directory_has_the_files_of_the_capsule_and_appears_once() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("words");
        let words = pulled(labels("words"), &directory).unwrap();
        words.write("aod-pulled.invalid/words:1").unwrap();
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!(read("Dockerfile"), "FROM aod-pulled.invalid/words:1\n");
        assert_eq!(
            (read(SCHEMA_JSON), read(AGENT_YAML)),
            ("{}".into(), "name: words\n".into())
        );
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
        let failure = pulled(labels("words"), &directory).err().unwrap();
        assert_eq!(failure.exit, Exit::Usage, "{}", failure.render());
        assert!(words.write("another").is_err());
        assert_eq!(read("Dockerfile"), "FROM aod-pulled.invalid/words:1\n");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn image_without_a_valid_capsule_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("words");
        let without_schema = CapsuleLabels {
            schema: None,
            ..labels("words")
        };
        for labels in [labels("../words"), labels(""), without_schema] {
            let failure = pulled(labels, &directory).err().unwrap();
            assert!(failure.render().contains("was not pushed by"));
        }
    }
}
