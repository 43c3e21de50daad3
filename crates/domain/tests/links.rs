//! Every relative link of the documentation has a target, and every anchor a heading.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages of the documentation.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut pending: Vec<PathBuf> = ["docs", "deploy", "capsules", "tests", "crates"]
        .map(|name| repository().join(name))
        .into();
    for entry in fs::read_dir(repository()).expect("this repository") {
        let path = entry.expect("an entry").path();
        pages.extend((path.extension() == Some("md".as_ref())).then_some(path));
    }
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = entry.path();
            if entry.file_type().expect("a kind of file").is_dir() {
                pending.push(path);
            } else if path.extension() == Some("md".as_ref()) {
                pages.push(path);
            }
        }
    }
    pages
}

/// The lines of a page outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    // The text of a link counts, its target does not.
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

fn anchors(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).expect("a page");
    let headings = prose(&text).filter(|line| line.starts_with('#'));
    headings.map(anchor).collect()
}

/// The targets of the links in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

#[test]
fn every_link_of_the_documentation_has_a_target() {
    let mut dead = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for target in prose(&text).flat_map(targets) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match path {
                "" => page.clone(),
                path => page.parent().expect("a directory").join(path),
            };
            let is_page = file.extension() == Some("md".as_ref());
            let leads =
                file.exists() && (anchor.is_empty() || !is_page || anchors(&file).contains(anchor));
            if !leads {
                dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn anchors_match_github() {
    let cases = [
        ("## Power loss: `sync_interval`", "power-loss-sync_interval"),
        ("# Write a [capsule](x.md)", "write-a-capsule"),
    ];
    for (heading, expected) in cases {
        assert_eq!(anchor(heading).replace('[', ""), expected);
    }
}
