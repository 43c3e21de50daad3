//! Builds the wheel of the Python SDK: equal sources give equal bytes.
//!
//! Source: "Binary distribution format" and "Core metadata" of the PyPA specifications.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

#[derive(Deserialize)]
struct PyProject {
    project: Project,
}

/// The fields of `[project]` that become metadata. Other fields are rejected, because they would be lost.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Project {
    name: String,
    version: String,
    #[serde(default)]
    description: Option<String>,
    /// A Markdown file.
    #[serde(default)]
    readme: Option<String>,
    #[serde(default)]
    license: Option<String>,
    #[serde(default)]
    requires_python: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
    #[serde(default)]
    optional_dependencies: BTreeMap<String, Vec<String>>,
}

/// Writes the wheel of the sources in `sdk` into `output`; returns its path.
pub(crate) fn write(sdk: &Path, output: &Path) -> PathBuf {
    let manifest = sdk.join("pyproject.toml");
    let PyProject { project } = toml::from_str(&super::read(&manifest))
        .unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
    let stem = format!("{}-{}", project.name.replace('-', "_"), project.version);
    let information = format!("{stem}.dist-info");
    let mut entries: Vec<(String, Vec<u8>)> = super::files(&sdk.join("src"))
        .into_iter()
        .map(|(name, path)| (name, fs::read(path).expect("a file of the sources")))
        .collect();
    entries.push((
        format!("{information}/METADATA"),
        metadata(&project, sdk).into(),
    ));
    entries.push((format!("{information}/WHEEL"), WHEEL.into()));
    let record = format!("{information}/RECORD");
    entries.push((record.clone(), record_of(&entries, &record).into()));
    let path = output.join(format!("{stem}-py3-none-any.whl"));
    pack(&entries, &path);
    path
}

const WHEEL: &str =
    "Wheel-Version: 1.0\nGenerator: aod\nRoot-Is-Purelib: true\nTag: py3-none-any\n";

fn metadata(project: &Project, sdk: &Path) -> String {
    let mut text = format!(
        "Metadata-Version: 2.4\nName: {}\nVersion: {}\n",
        project.name, project.version
    );
    let mut line = |key: &str, value: &str| {
        writeln!(text, "{key}: {value}").expect("memory can be written");
    };
    let optional = [
        ("Summary", &project.description),
        ("License-Expression", &project.license),
        ("Requires-Python", &project.requires_python),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            line(key, value);
        }
    }
    for dependency in &project.dependencies {
        line("Requires-Dist", dependency);
    }
    for (extra, dependencies) in &project.optional_dependencies {
        line("Provides-Extra", extra);
        for dependency in dependencies {
            let of_extra = match dependency.split_once(';') {
                None => format!("{dependency}; extra == '{extra}'"),
                Some((name, marker)) => {
                    format!("{name}; ({}) and extra == '{extra}'", marker.trim())
                }
            };
            line("Requires-Dist", &of_extra);
        }
    }
    if let Some(readme) = &project.readme {
        text.push_str("Description-Content-Type: text/markdown\n\n");
        text.push_str(&super::read(&sdk.join(readme)));
    }
    text
}

/// A line for each entry with its digest and size, then a line for the record itself, without both.
fn record_of(entries: &[(String, Vec<u8>)], record: &str) -> String {
    let mut text = String::new();
    for (name, bytes) in entries {
        let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        writeln!(text, "{name},sha256={digest},{}", bytes.len()).expect("memory can be written");
    }
    text + record + ",,\n"
}

/// Writes the entries uncompressed, with the earliest time of the format.
fn pack(entries: &[(String, Vec<u8>)], path: &Path) {
    let file = File::create(path).expect("the output directory can be written");
    let mut archive = ZipWriter::new(file);
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644);
    for (name, bytes) in entries {
        archive
            .start_file(name.as_str(), options)
            .expect("a new entry");
        archive
            .write_all(bytes)
            .expect("the archive can be written");
    }
    archive.finish().expect("the archive can be written");
}
