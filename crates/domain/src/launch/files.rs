//! The files of a request: their names, and which of them the arguments reference.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::contract::{FileKind, Reference};
use crate::file_name::FileName;
use crate::run::FileEntry;

/// Two files of a request that cannot exist side by side.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameClash {
    #[error("{0} is given twice")]
    Twice(FileName),
    #[error("{name} is below {parent}, which is a file")]
    BelowFile { name: FileName, parent: FileName },
}

/// The names of `files`: each once, none of them a directory of another.
pub(super) fn distinct_names(files: &[FileEntry]) -> Result<BTreeSet<FileName>, Vec<NameClash>> {
    let mut names = BTreeSet::new();
    let mut clashes = Vec::new();
    for file in files {
        if !names.insert(file.name.clone()) {
            clashes.push(NameClash::Twice(file.name.clone()));
        }
    }
    for name in &names {
        let text = name.as_str();
        let mut above = text.match_indices('/').map(|(end, _)| &text[..end]);
        if let Some(parent) = above.find_map(|above| names.get(above)) {
            clashes.push(NameClash::BelowFile {
                name: name.clone(),
                parent: parent.clone(),
            });
        }
    }
    if clashes.is_empty() {
        Ok(names)
    } else {
        Err(clashes)
    }
}

/// What `name` stands for among `names`: a file, or a directory that holds one.
pub(super) fn kind_of(names: &BTreeSet<FileName>, name: &str) -> Option<FileKind> {
    if names.contains(name) {
        return Some(FileKind::File);
    }
    let below = format!("{name}/");
    let is_directory = names.iter().any(|file| file.as_str().starts_with(&below));
    is_directory.then_some(FileKind::Directory)
}

/// The `files` that `references` name, and those in a directory that they name.
pub(super) fn referenced(files: &[FileEntry], references: &[Reference]) -> Vec<FileEntry> {
    let is_meant = |file: &&FileEntry| {
        references.iter().any(|reference| match reference.kind {
            FileKind::File => reference.name == file.name,
            FileKind::Directory => {
                let below = file.name.as_str().strip_prefix(reference.name.as_str());
                below.is_some_and(|rest| rest.starts_with('/'))
            }
        })
    };
    files.iter().filter(is_meant).cloned().collect()
}
