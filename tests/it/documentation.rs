//! The guides name existing tests as proofs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_row_of_what_happens_when_names_existing_tests() {
    check_rows("what-happens-when.md", "", "| when ", 30);
}

#[test]
fn every_parser_of_foreign_bytes_has_tests() {
    check_rows(
        "security.md",
        "## Parsers of foreign bytes",
        "| parser ",
        15,
    );
}

/// Checks that the last cell of each row names tests. The table is below `heading` and has at least `rows_min` rows.
fn check_rows(page: &str, heading: &str, head: &str, rows_min: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/guide").join(page)).expect("the page");
    let mut tests = BTreeSet::new();
    for directory in ["crates", "tests/it"] {
        collect_tests(&root.join(directory), &mut tests);
    }
    let (_, section) = text.split_once(heading).expect("the section");
    let rows: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with(head))
        .collect();
    assert!(rows.len() >= rows_min, "{} rows", rows.len());
    for row in rows {
        let cell = row
            .trim_end_matches(" |")
            .rsplit(" | ")
            .next()
            .expect("a cell");
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test is named: {row}");
        for name in names {
            assert!(tests.contains(name), "there is no test {name}: {row}");
        }
    }
}

/// The names of all functions marked as tests.
fn collect_tests(directory: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("a directory of the sources") {
        let path = entry.expect("an entry of the sources").path();
        if path.is_dir() {
            collect_tests(&path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources are text");
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                let name = line
                    .split_once("fn ")
                    .and_then(|(_, rest)| rest.split('(').next());
                match name {
                    Some(name) if is_test => {
                        tests.insert(name.to_owned());
                        is_test = false;
                    }
                    _ => is_test |= line == "#[test]" || line.starts_with("#[tokio::test"),
                }
            }
        }
    }
}
