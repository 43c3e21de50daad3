//! `aod capsule new`: the directory of a capsule, from a template.

use std::fs;
use std::path::Path;

use aod_domain::manifest::{CapsuleName, slug};
use clap::ValueEnum as _;
use serde_json::json;

use crate::arguments::NewArguments;
use crate::capsule::wheel;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

/// Every file of every template: template, name, bytes.
const FILES: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/templates.rs"));

/// What stands in templates for the name of the new capsule.
const NAME_IN_TEMPLATES: &str = "capsule-name";

pub(super) fn new(arguments: &NewArguments, console: Console) -> Result<Exit, Failure> {
    let directory = &arguments.directory;
    let name = name_of(directory)?;
    fs::create_dir(directory).map_err(|error| {
        let failure = Failure::usage(format!("{} cannot be made", directory.display()));
        failure.because(&error)
    })?;
    let template = arguments.template.to_possible_value();
    let template = template.expect("every template has a name");
    let files = files_of(template.get_name(), &name);
    for (file, bytes) in &files {
        write(&directory.join(file), bytes).map_err(|error| {
            let failure = Failure::environment(format!("{file} cannot be written"));
            failure.because(&error)
        })?;
    }
    let shown = directory.display().to_string();
    let names: Vec<&str> = files.iter().map(|(file, _)| file.as_str()).collect();
    console.show(
        &json!({"name": name, "directory": shown, "files": names}),
        || shown.clone(),
    )?;
    console.tell(&format!(
        "next: aod capsule test {shown}     its cases, without a cluster\n      \
         then edit schema.json and what does the work; README.md of the capsule says more"
    ));
    Ok(Exit::Ok)
}

fn name_of(directory: &Path) -> Result<CapsuleName, Failure> {
    let text = directory.file_name().unwrap_or_default().to_string_lossy();
    CapsuleName::parse(&text).map_err(|error| {
        let failure = Failure::usage(error.to_string());
        match slug(&text) {
            Some(name) => failure.with_hint(format!("{name} would do")),
            None => failure,
        }
    })
}

/// The files of a template for the capsule `name`, with the wheel if it is made with that.
fn files_of(template: &str, name: &CapsuleName) -> Vec<(String, Vec<u8>)> {
    let own = FILES.iter().filter(|(other, _, _)| *other == template);
    let mut files: Vec<(String, Vec<u8>)> = own
        .map(|(_, file, bytes)| {
            let text = std::str::from_utf8(bytes).expect("templates are text");
            let text = text.replace(NAME_IN_TEMPLATES, name.as_str());
            ((*file).to_owned(), text.into_bytes())
        })
        .collect();
    let wants_wheel = files.iter().any(|(file, bytes)| {
        file == "Dockerfile" && std::str::from_utf8(bytes).is_ok_and(wheel::is_wanted)
    });
    if wants_wheel {
        let path = format!("{}/{}", wheel::DIRECTORY, wheel::NAME);
        files.push((path, wheel::BYTES.to_owned()));
    }
    files
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    fs::write(path, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Template;
    use crate::capsule::{cases, validate};

    fn quiet() -> Console {
        Console {
            format: crate::console::Format::Json,
            is_interactive: false,
        }
    }

    #[test]
    fn every_template_is_a_capsule_with_a_case() {
        for template in Template::value_variants() {
            let root = tempfile::tempdir().unwrap();
            let arguments = NewArguments {
                directory: root.path().join("word-count"),
                template: *template,
            };
            new(&arguments, quiet()).unwrap();
            assert_eq!(validate(&arguments.directory).unwrap(), []);
            assert_eq!(cases::read(&arguments.directory).unwrap().len(), 1);
            let agent = fs::read_to_string(arguments.directory.join("agent.yaml")).unwrap();
            assert!(agent.contains("\nname: word-count\n"), "{agent}");
            assert!(fs::read_dir(&arguments.directory).unwrap().all(|entry| {
                let text = fs::read(entry.unwrap().path()).unwrap_or_default();
                !String::from_utf8_lossy(&text).contains(NAME_IN_TEMPLATES)
            }));
            let again = new(&arguments, quiet()).unwrap_err().render();
            assert!(again.contains("word-count cannot be made"), "{again}");
        }
    }

    #[test]
    fn a_name_that_is_none_is_mended() {
        let root = tempfile::tempdir().unwrap();
        let arguments = NewArguments {
            directory: root.path().join("Word Count"),
            template: Template::Plain,
        };
        let failure = new(&arguments, quiet()).unwrap_err().render();
        assert!(failure.ends_with("hint: word-count would do"), "{failure}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
