//! The files that describe a capsule: `agent.yaml`, `tools.yaml`, `Dockerfile`, names, and the tar file that contains
//! them.

use std::collections::BTreeSet;

use aod_domain::contract::Contract;
use aod_domain::dockerfile::{rewritten, uses};
use aod_domain::file_name::{
    COMPONENT_LENGTH_BYTES_MAX, Directory, FileName, NAME_DEPTH_MAX, NAME_LENGTH_BYTES_MAX,
    unique_name,
};
use aod_domain::manifest::{AgentManifest, CapsuleName, Registered, ToolsManifest, resolve, slug};
use aod_domain::subject::Pool;
use aod_domain::yaml;
use aod_gateway::fuzzing::package;

use crate::problems::{check_message, check_pointer};

/// Maximum problems of a manifest.
const PROBLEMS_MAX: usize = 50;

/// The same bytes as either manifest, as a tar file, as a `Dockerfile`, and each line as a name.
pub fn check(bytes: &[u8]) {
    check_manifest(bytes, AgentManifest::parse(bytes).err());
    check_manifest(bytes, ToolsManifest::parse(bytes).err());
    match package(bytes) {
        Ok(schema) => drop(Contract::parse(&schema).expect("a package has a proper schema")),
        Err(problems) => {
            assert!((1..=PROBLEMS_MAX).contains(&problems.len()), "{problems:?}");
            for problem in problems {
                check_pointer(problem.pointer.split('#').next().unwrap_or_default());
                check_message(&problem.message);
            }
        }
    }
    if let Ok(text) = str::from_utf8(bytes) {
        check_dockerfile(text);
    }
    for line in bytes.split(|&byte| byte == b'\n') {
        if let Ok(name) = FileName::from_bytes(line) {
            check_file_name(&name);
        }
        if let Ok(text) = str::from_utf8(line) {
            check_names(text);
        }
    }
}

/// The uses of images are where the file has them, in order; other references leave the lines and stages as they are.
fn check_dockerfile(text: &str) {
    let found = uses(text);
    let words: Vec<&str> = found.iter().map(|used| used.word.text).collect();
    let mut rest = text;
    for word in &words {
        rest = rest.split_once(word).expect("the word follows").1;
    }
    let id = format!("sha256:{}", "0".repeat(64));
    let new = rewritten(text, &found, |_| Some(&id));
    assert_eq!(new.lines().count(), text.lines().count(), "{new:?}");
    let changed = uses(&new);
    assert_eq!(changed.len(), found.len(), "{new:?}");
    for (new, old) in changed.iter().zip(&found) {
        assert_eq!((&new.reference, new.is_final), (&id, old.is_final));
    }
    assert!(found.iter().filter(|used| used.is_final).count() <= 1);
}

/// Each problem of a manifest names an existing line.
fn check_manifest(bytes: &[u8], problems: Option<Vec<yaml::Problem>>) {
    let Some(problems) = problems else { return };
    assert!(!problems.is_empty());
    check_problems(bytes, &problems);
}

/// Each problem of a YAML file names an existing line.
pub(crate) fn check_problems(bytes: &[u8], problems: &[yaml::Problem]) {
    assert!(problems.len() <= PROBLEMS_MAX, "{problems:?}");
    // YAML also ends lines at carriage returns.
    let is_end = |byte: &&u8| matches!(byte, b'\n' | b'\r');
    let lines = bytes.iter().filter(is_end).count() as u64 + 1;
    for problem in problems {
        assert!(problem.line <= lines, "{problem}: {lines} lines");
        assert_eq!(problem.line == 0, problem.column == 0, "{problem}");
        check_message(&problem.message);
    }
}

/// A file name cannot leave its directory, and always has an alternative name.
fn check_file_name(name: &FileName) {
    assert!(name.as_str().len() <= NAME_LENGTH_BYTES_MAX);
    assert!(name.components().count() <= NAME_DEPTH_MAX);
    for component in name.components() {
        assert!(!matches!(component, "" | "." | ".."));
        assert!(component.len() <= COMPONENT_LENGTH_BYTES_MAX);
        assert!(!component.contains(|character: char| character.is_control()));
    }
    let mut taken = BTreeSet::new();
    for _ in 0..3 {
        let other = unique_name(name, &taken);
        assert_eq!(FileName::parse(other.as_str()).as_ref(), Ok(&other));
        assert!(taken.insert(other));
    }
}

fn check_names(text: &str) {
    for directory in [Directory::Input, Directory::Output, Directory::Outgoing] {
        let relative = directory.relative(text);
        assert!(text.ends_with(relative));
    }
    if let Ok(pool) = text.parse::<Pool>() {
        assert_eq!(pool.as_str(), text);
    }
    let named = CapsuleName::parse(text);
    if let Ok(name) = &named {
        assert_eq!((name.as_str(), slug(text).as_ref()), (text, Some(name)));
    }
    let Some(name) = slug(text) else { return };
    assert_eq!(slug(name.as_str()).as_ref(), Some(&name));
    let capsule = Registered {
        name: &name,
        title: None,
        aliases: &[],
    };
    assert_eq!(resolve(text, [capsule]), Ok(&name));
    if let Err(error) = resolve("another", [capsule]) {
        check_message(&error.to_string());
    }
}
