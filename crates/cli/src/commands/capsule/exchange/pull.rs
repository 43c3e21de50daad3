//! `aod capsule pull`: makes a capsule directory from an image in a registry or in a directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aod_domain::manifest::CapsuleName;
use aod_ports::container_runtime::RuntimeError;
use aod_registry::exchange::ExchangeError;
use aod_registry::labels::CapsuleLabels;
use aod_registry::layout::Layout;
use aod_registry::reference::Place;
use aod_registry::remote::Remote;
use serde_json::json;
use tempfile::TempDir;

use super::{AGENT_YAML, SCHEMA_JSON, Store, TOOLS_YAML, connect, failed, login, place};
use crate::arguments::PullArguments;
use crate::console::Console;
use crate::failure::Failure;

/// The registry in the names of images that came from a layout. Names that end in `.invalid` never exist (RFC 2606): an
/// engine without the image cannot pull another one of the same name.
const PULLED: &str = "aod-pulled.invalid";

/// Length of a digest in such a name.
const DIGITS: usize = 12;

pub(super) async fn run(arguments: &PullArguments, console: Console) -> Result<(), Failure> {
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

/// The failure of the engine to get an image that exists.
fn unfetched(reference: &str, error: &RuntimeError) -> Failure {
    let failure = Failure::environment(format!("Docker cannot load the image of {reference}"));
    failure.because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::RegistryArguments;
    use crate::exit::Exit;

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
