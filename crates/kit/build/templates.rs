//! Generates the table of templates of new capsules.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Writes a Rust expression to `target`: `&[(template, name, text), …]`.
pub(crate) fn write(templates: &Path, target: &Path) {
    let mut text = String::from("&[\n");
    for (name, path) in super::files(templates) {
        let (template, name) = name
            .split_once('/')
            .expect("each template is a directory of its own");
        let path = path.to_str().expect("names of sources are UTF-8");
        writeln!(
            text,
            "    ({template:?}, {name:?}, include_str!({path:?})),"
        )
        .expect("memory can be written");
    }
    text.push_str("]\n");
    fs::write(target, text).expect("the output directory can be written");
}
