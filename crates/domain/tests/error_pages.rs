//! Compares `docs/errors/` with the error codes: every code has its page and its row in the index, and every page has a
//! code.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use aod_domain::error_code::{ErrorCode, ErrorSource};

/// The only page without a code: the index.
const INDEX: &str = "README.md";

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")
}

fn read(name: &str) -> String {
    let path = directory().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const fn fixed_by(code: ErrorCode) -> &'static str {
    match code.source() {
        ErrorSource::Capsule => "the capsule's author",
        ErrorSource::Caller => "the caller",
        ErrorSource::Platform => "the operator",
    }
}

const fn retryable(code: ErrorCode) -> &'static str {
    if code.is_retryable() { "yes" } else { "no" }
}

#[test]
fn every_code_has_its_page() {
    for &code in ErrorCode::ALL {
        let page = read(&format!("{code}.md"));
        let heading = format!("# {code}: {}", code.title());
        assert_eq!(page.lines().next(), Some(heading.as_str()));
        for expected in [
            format!("- Fixed by: {}", fixed_by(code)),
            format!("- Retryable: {}", retryable(code)),
            "## What to do".to_owned(),
            "## Example".to_owned(),
        ] {
            assert!(
                page.lines().any(|line| line == expected),
                "{code}.md lacks the line {expected:?}"
            );
        }
    }
}

#[test]
fn remedy_is_one_sentence_that_a_terminal_can_show() {
    for code in ErrorCode::ALL {
        let remedy = code.remedy();
        assert!(
            remedy.ends_with('.'),
            "{code}: {remedy:?} is not a sentence"
        );
        assert!(!remedy.contains("]("), "{code}: {remedy:?} has a link");
    }
    assert_eq!(
        ErrorCode::CapsuleExit.remedy(),
        "Read the output of the capsule: `aod runs logs RUN`."
    );
}

#[test]
fn no_page_is_without_a_code() {
    let entries = fs::read_dir(directory()).expect("docs/errors is there");
    let found: BTreeSet<String> = entries
        .map(|entry| {
            entry
                .expect("it can be listed")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let codes = ErrorCode::ALL.iter().map(|code| format!("{code}.md"));
    assert_eq!(found, codes.chain([INDEX.to_owned()]).collect());
}

#[test]
fn the_index_has_a_row_for_every_code_and_no_other() {
    let index = read(INDEX);
    let rows: Vec<&str> = index
        .lines()
        .filter(|line| line.starts_with("| ["))
        .collect();
    let row = |&code: &ErrorCode| {
        let (title, who, again) = (code.title(), fixed_by(code), retryable(code));
        format!("| [{code}]({code}.md) | {title} | {who} | {again} |")
    };
    assert_eq!(rows, ErrorCode::ALL.iter().map(row).collect::<Vec<_>>());
}
