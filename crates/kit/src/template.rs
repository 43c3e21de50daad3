//! The files of a new capsule.

use std::fs;
use std::path::Path;

use aod_domain::manifest::{CapsuleName, slug};

use super::{Error, wheel};

/// Every file of every template: template, name, text.
const FILES: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/templates.rs"));

/// The placeholder in templates for the name of the new capsule.
const NAME_IN_TEMPLATES: &str = "capsule-name";

/// Creates `directory` from `template`, a directory in `templates/`; with the SDK's wheel if its Dockerfile installs it.
///
/// Returns the name of the capsule, which is the name of the directory, and the names of its files.
pub fn create(directory: &Path, template: &str) -> Result<(CapsuleName, Vec<&'static str>), Error> {
    let name = name_of(directory)?;
    fs::create_dir(directory).map_err(|source| Error::NotCreated {
        path: directory.to_owned(),
        source,
    })?;
    let (mut files, mut wants_wheel) = (Vec::new(), false);
    for &(_, file, text) in FILES.iter().filter(|(other, _, _)| *other == template) {
        wants_wheel |= file == "Dockerfile" && wheel::is_wanted(text);
        let text = text.replace(NAME_IN_TEMPLATES, name.as_str());
        write(directory, file, text.as_bytes())?;
        files.push(file);
    }
    if wants_wheel {
        write(directory, wheel::PATH, wheel::BYTES)?;
        files.push(wheel::PATH);
    }
    Ok((name, files))
}

fn name_of(directory: &Path) -> Result<CapsuleName, Error> {
    let text = directory.file_name().unwrap_or_default().to_string_lossy();
    CapsuleName::parse(&text).map_err(|error| Error::Refused {
        message: error.to_string(),
        details: Vec::new(),
        hint: slug(&text).map(|name| format!("use {name}")),
    })
}

fn write(directory: &Path, file: &'static str, bytes: &[u8]) -> Result<(), Error> {
    let path = directory.join(file);
    let made = fs::create_dir_all(path.parent().unwrap_or(directory));
    let written = made.and_then(|()| fs::write(&path, bytes));
    written.map_err(|source| Error::NotWritten { file, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cases, validate};

    #[test]
    fn every_template_creates_a_valid_capsule_with_one_case() {
        let mut templates: Vec<&str> = FILES.iter().map(|(template, _, _)| *template).collect();
        templates.dedup();
        for template in templates {
            let root = tempfile::tempdir().unwrap();
            let directory = root.path().join("word-count");
            create(&directory, template).unwrap();
            assert_eq!(validate(&directory).unwrap(), []);
            assert_eq!(cases::read(&directory).unwrap().len(), 1);
            let agent = fs::read_to_string(directory.join("agent.yaml")).unwrap();
            assert!(agent.contains("\nname: word-count\n"), "{agent}");
            assert!(fs::read_dir(&directory).unwrap().all(|entry| {
                let text = fs::read(entry.unwrap().path()).unwrap_or_default();
                !String::from_utf8_lossy(&text).contains(NAME_IN_TEMPLATES)
            }));
        }
    }
}
