//! Embeds the templates of new capsules and the wheel of the Python SDK into the program.

#[path = "build/templates.rs"]
mod templates;
#[path = "build/wheel.rs"]
mod wheel;

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    let package = directory("CARGO_MANIFEST_DIR");
    let output = directory("OUT_DIR");
    templates::write(&package.join("templates"), &output.join("templates.rs"));
    let sdk = package.join("../../capsules/sdk");
    let wheel = wheel::write(&sdk, &output);
    println!("cargo::rustc-env=AOD_WHEEL={}", wheel.display());
    let name = wheel.file_name().expect("a wheel has a name");
    println!("cargo::rustc-env=AOD_WHEEL_NAME={}", name.to_string_lossy());
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
}

fn directory(variable: &str) -> PathBuf {
    env::var_os(variable)
        .expect("cargo sets it for build scripts")
        .into()
}

/// Reads a file, and makes cargo watch it.
fn read(path: &Path) -> String {
    println!("cargo::rerun-if-changed={}", path.display());
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The regular files below `root` with their relative names, sorted; without the caches of Python.
fn files(root: &Path) -> Vec<(String, PathBuf)> {
    println!("cargo::rerun-if-changed={}", root.display());
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let entries = std::fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for entry in entries {
            let path = entry.expect("an entry of the sources").path();
            let is_left_out = path.file_name().is_some_and(|name| name == "__pycache__")
                || path.extension().is_some_and(|end| end == "pyc");
            if is_left_out {
                continue;
            }
            if path.is_dir() {
                pending.push(path);
                continue;
            }
            let name = path.strip_prefix(root).expect("it was found below");
            let name = name
                .to_str()
                .expect("names of sources are UTF-8")
                .to_owned();
            found.push((name, path));
        }
    }
    found.sort();
    found
}
