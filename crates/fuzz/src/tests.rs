//! Runs the corpus through every target: regression tests for fixed bugs.

mod worst_cases;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;

fn fuzz_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz")
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    entries
        .map(|entry| {
            let name = entry.expect("an entry").file_name();
            name.into_string().expect("a name in UTF-8")
        })
        .collect()
}

/// Runs a directory of the corpus through its target; prints the name of a failing input.
fn check_corpus(name: &str) {
    let (_, target) = TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a target");
    let directory = fuzz_directory().join("corpus").join(name);
    let inputs = names_in(&directory);
    assert!(inputs.len() >= 5, "{name} has a corpus");
    for input in inputs {
        println!("{name}/{input}");
        target(&std::fs::read(directory.join(&input)).expect("a readable input"));
    }
}

macro_rules! corpus_tests {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            check_corpus(stringify!($name));
        })*

        #[test]
        fn every_target_has_a_test_a_program_and_a_corpus() {
            let targets: BTreeSet<String> = TARGETS.map(|(name, _)| name.to_owned()).into();
            assert_eq!(BTreeSet::from([$(stringify!($name).to_owned()),*]), targets);
            assert_eq!(names_in(&fuzz_directory().join("corpus")), targets);
            let program = |name: &String| format!("{name}.rs");
            let programs = targets.iter().map(program).collect();
            assert_eq!(names_in(&fuzz_directory().join("fuzz_targets")), programs);
        }
    };
}

corpus_tests!(
    channel,
    events,
    gate_protocol,
    handoff,
    images,
    logs,
    manifests,
    output,
    schema,
    workflows
);

#[test]
fn input_is_split_at_separators() {
    assert_eq!(parts(b"a\n%%\nb\n%%\nc"), [&b"a"[..], b"b\n%%\nc"]);
    assert_eq!(parts(b"a"), [&b"a"[..], b"", b""]);
}
