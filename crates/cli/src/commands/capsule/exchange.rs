//! `aod capsule push` and `pull`: capsules in registries. Labels of the image contain the files of the
//! directory; a pulled capsule is a directory whose Dockerfile is one line.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use aod_docker::exchange::{Exchange, Pulled};
use aod_kit::Source;
use aod_ports::container_runtime::RuntimeError;
use serde_json::json;
use tokio::sync::mpsc;

use super::packed;
use crate::arguments::{PullArguments, PushArguments, RegistryArguments};
use crate::console::Console;
use crate::failure::Failure;
use crate::service::docker;

/// The image labels that contain complete files of a capsule, with the names of the files.
const FILES: [(&str, &str); 3] = [
    ("dev.aod.schema", "schema.json"),
    ("dev.aod.agent", "agent.yaml"),
    ("dev.aod.tools", "tools.yaml"),
];

/// The label with the capsule's name.
const LABEL_NAME: &str = "dev.aod.name";

/// Maximum size of all labels, in bytes: the URL of a request to the engine contains them. Source: Go's
/// `http.DefaultMaxHeaderBytes` is 1 MiB, and a byte of text may take three bytes in a URL.
const LABELS_BYTES_MAX: usize = 300 * 1024;

/// Maximum buffered output lines of a build or a push.
const LINES_QUEUED: usize = 256;

pub(super) async fn push(arguments: &PushArguments, console: Console) -> Result<(), Failure> {
    let source = Source::read(&arguments.directory)?;
    let labels = labels_of(&source)?;
    let package = packed(&arguments.directory, console)?;
    let exchange = connect(&arguments.registry)?;
    let (progress, mut lines) = mpsc::channel::<String>(LINES_QUEUED);
    let name = source.name.as_str();
    let pushing = exchange.push(
        package.file.path(),
        name,
        &arguments.reference,
        labels,
        progress,
    );
    let showing = async {
        while let Some(line) = lines.recv().await {
            console.tell(&format!("  {line}"));
        }
    };
    let (pushed, ()) = tokio::join!(pushing, showing);
    let reference = pushed.map_err(|error| failed(&arguments.reference, &error))?;
    console.show(&json!({"capsule": name, "reference": reference}), || {
        reference.clone()
    })
}

pub(super) async fn pull(arguments: &PullArguments, console: Console) -> Result<(), Failure> {
    let exchange = connect(&arguments.registry)?;
    let pulled = exchange.pull(&arguments.reference).await;
    let pulled = pulled.map_err(|error| failed(&arguments.reference, &error))?;
    let name = pulled.labels.get(LABEL_NAME).cloned();
    let (Some(name), true) = (name, pulled.labels.contains_key(FILES[0].0)) else {
        let text = format!(
            "{} was not pushed by `aod capsule push`",
            arguments.reference
        );
        return Err(Failure::usage(text).with_hint(
            "for other images, create a directory with a Dockerfile (`FROM IMAGE`) and a schema.json",
        ));
    };
    let directory = arguments.directory.clone();
    let directory = directory.unwrap_or_else(|| PathBuf::from(&name));
    write(&directory, &pulled).map_err(|error| {
        Failure::usage(format!("{} cannot be written", directory.display())).because(&error)
    })?;
    let shown = directory.display().to_string();
    let report = json!({"capsule": name, "reference": pulled.reference, "directory": shown});
    console.show(&report, || shown.clone())
}

fn labels_of(source: &Source) -> Result<HashMap<String, String>, Failure> {
    let mut agent = source.agent_yaml.clone().unwrap_or_default();
    if source.agent.name.is_none() {
        // The name follows from the directory, which may have another name after a pull.
        agent.splice(0..0, format!("name: {}\n", source.name).into_bytes());
    }
    let texts = [
        Some(&source.schema_json),
        Some(&agent),
        source.tools_yaml.as_ref(),
    ];
    let mut labels = HashMap::new();
    for ((label, _), text) in FILES.iter().zip(texts) {
        if let Some(text) = text {
            let text = String::from_utf8_lossy(text).into_owned();
            labels.insert((*label).to_owned(), text);
        }
    }
    let bytes: usize = labels.values().map(String::len).sum();
    if bytes > LABELS_BYTES_MAX {
        let text = format!(
            "schema.json, agent.yaml and tools.yaml have {bytes} bytes together; expected at most {LABELS_BYTES_MAX}, \
             because they become labels of the image"
        );
        return Err(Failure::usage(text));
    }
    Ok(labels)
}

/// Creates the directory; fails without a change if it exists.
fn write(directory: &Path, pulled: &Pulled) -> std::io::Result<()> {
    fs::create_dir(directory)?;
    let recipe = format!("FROM {}\n", pulled.reference);
    fs::write(directory.join("Dockerfile"), recipe)?;
    for (label, file) in FILES {
        if let Some(text) = pulled.labels.get(label) {
            fs::write(directory.join(file), text)?;
        }
    }
    Ok(())
}

fn connect(arguments: &RegistryArguments) -> Result<Exchange, Failure> {
    let socket = docker::socket(&arguments.docker)?;
    let registries = arguments.registries.clone().or_else(usual_credentials);
    Exchange::connect(&socket, registries)
        .map_err(|error| docker::unusable(&arguments.docker, &error))
}

/// The file that `docker login` writes, if it exists.
fn usual_credentials() -> Option<PathBuf> {
    let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    let path = directory.or_else(home)?.join("config.json");
    path.exists().then_some(path)
}

fn failed(reference: &str, error: &RuntimeError) -> Failure {
    let failure = Failure::environment(format!("the transfer of {reference} failed"));
    let failure = failure.because(error);
    match error {
        RuntimeError::BuildFailed { last_lines, .. } => failure.with_details(last_lines.clone()),
        _ => failure.with_hint("for a private registry, first run `docker login REGISTRY`"),
    }
}
