//! A new name for a file whose name is taken.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::{COMPONENT_LENGTH_BYTES_MAX, FileName, NAME_LENGTH_BYTES_MAX};

/// Longest extension that stays after the number, in bytes with its dots: `.tar.zst` and the like; a longer text after
/// a dot is not an extension.
const EXTENSION_LENGTH_BYTES_MAX: usize = 16;

/// `name` itself if it is free, else the first free one of `name-2`, `name-3`, ….
///
/// The number comes before the extension: `report-2.pdf`, `a/b-2.tar.gz` (`.tar` belongs to the extension), `.env-2` (a
/// leading dot begins no extension).
/// A name also clashes if a taken name is below it or above it, because one of them would have to be a directory. If a
/// taken file is where `report/page` needs a directory, that part gets the number: `report-2/page`.
/// A part that grows too long loses characters before its number; if the whole name is too long, only the last part is
/// kept.
pub fn unique_name(name: &FileName, taken: &BTreeSet<FileName>) -> FileName {
    if clashes(name.as_str(), taken) {
        renamed(name, taken)
    } else {
        name.clone()
    }
}

fn renamed(name: &FileName, taken: &BTreeSet<FileName>) -> FileName {
    let clash_end = first_taken_prefix(name.as_str(), taken).unwrap_or(name.as_str().len());
    let (clashing, rest) = name.as_str().split_at(clash_end);
    let last_component = name.components().next_back().unwrap_or_default();
    first_free(clashing, rest, taken)
        .or_else(|| first_free(last_component, "", taken))
        .expect("there is always room for a number at the top")
}

/// Candidates differ in the part with the number, so each taken name excludes at most one of them: among one more
/// candidates than taken names, one is free, if it fits.
fn first_free(clashing: &str, rest: &str, taken: &BTreeSet<FileName>) -> Option<FileName> {
    let number_last = taken.len() + 2;
    (2..=number_last)
        .map_while(|number| FileName::parse(&numbered(clashing, rest, number)).ok())
        .find(|candidate| !clashes(candidate.as_str(), taken))
}

/// The end of the shortest proper prefix of `name` that is a taken file.
fn first_taken_prefix(name: &str, taken: &BTreeSet<FileName>) -> Option<usize> {
    name.match_indices('/')
        .map(|(end, _)| end)
        .find(|&end| taken.contains(&name[..end]))
}

fn clashes(candidate: &str, taken: &BTreeSet<FileName>) -> bool {
    taken.contains(candidate)
        || first_taken_prefix(candidate, taken).is_some()
        || has_below(candidate, taken)
}

/// Whether a taken name is in the directory `candidate`.
fn has_below(candidate: &str, taken: &BTreeSet<FileName>) -> bool {
    let directory = format!("{candidate}/");
    taken
        .range::<str, _>((Bound::Included(directory.as_str()), Bound::Unbounded))
        .next()
        .is_some_and(|name| name.as_str().starts_with(&directory))
}

/// `clashing` with the number in its last component, then `rest`.
fn numbered(clashing: &str, rest: &str, number: usize) -> String {
    let component_start = clashing.rfind('/').map_or(0, |slash| slash + 1);
    let (parent, component) = clashing.split_at(component_start);
    let (stem, extension) = component.split_at(extension_start(component));
    let suffix = format!("-{number}{extension}");
    let room = COMPONENT_LENGTH_BYTES_MAX
        .min(NAME_LENGTH_BYTES_MAX.saturating_sub(parent.len() + rest.len()))
        .saturating_sub(suffix.len());
    format!("{parent}{}{suffix}{rest}", shortened(stem, room))
}

/// The longest prefix of `text` with at most `length` bytes.
fn shortened(text: &str, length: usize) -> &str {
    let end = (0..=length.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// Start of the extension of `component`, including its dot; its length without an extension.
fn extension_start(component: &str) -> usize {
    let start = match component.rfind('.') {
        None | Some(0) => component.len(),
        Some(dot) => match component[..dot].strip_suffix(".tar") {
            Some(stem) if !stem.is_empty() => stem.len(),
            _ => dot,
        },
    };
    if component.len() - start > EXTENSION_LENGTH_BYTES_MAX {
        component.len()
    } else {
        start
    }
}
