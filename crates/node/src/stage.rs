//! Takes the files of a call out of `outgoing/`: each is copied once, while it is hashed, and only
//! the copy is used, because the caller is alive and may change it at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use aod_domain::file_name::{Directory, FileName};
use aod_domain::run::FileEntry;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_ports::program::blocking;
use serde_json::Value;

use crate::tree::{BoundedReader, FILES_MAX, Kind, Refused, Tree};

/// Why the files of a call are not handed over, sorted by who mends it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StageError {
    /// The caller: where in the arguments, and why.
    #[error("a file is refused")]
    Refused(Vec<(String, Refused)>),
    /// The operator, or time.
    #[error("files cannot be stored")]
    Store(#[from] StoreError),
}

/// Stores every file that `arguments` name: a text, at any depth, that is the name of something in
/// `outgoing`; a directory stands for all files in it. The gateway keeps those that the callee's
/// schema makes references of.
///
/// At most `bytes_max` in all.
pub(crate) async fn stage(
    arguments: &Value,
    outgoing: PathBuf,
    bytes_max: u64,
    artifacts: &Arc<dyn ArtifactStore>,
) -> Result<Vec<FileEntry>, StageError> {
    let texts = texts_of(arguments);
    if texts.is_empty() || Tree::open(&outgoing).is_ok_and(|tree| tree.is_empty()) {
        return Ok(Vec::new());
    }
    let (tree, places) = blocking(move || find(&outgoing, &texts)).await?;
    let names = places.keys().cloned().collect();
    let stored = store_all(&tree, names, bytes_max, artifacts).await;
    stored.map_err(|error| at_places(error, &places))
}

/// Tells of the arguments what is told of their files.
fn at_places(error: StageError, places: &Places) -> StageError {
    let StageError::Refused(refused) = error else {
        return error;
    };
    let place = |name: String| places.get(name.as_str()).cloned().unwrap_or(name);
    let refused = refused.into_iter();
    StageError::Refused(
        refused
            .map(|(name, reason)| (place(name), reason))
            .collect(),
    )
}

/// Files to be handed over, each with the JSON pointer of an argument that names it.
type Places = BTreeMap<FileName, String>;

/// Stores the files `names` of `tree`, at most `bytes_max` in all. Refusals are by name.
pub(crate) async fn store_all(
    tree: &Arc<Tree>,
    names: BTreeSet<FileName>,
    bytes_max: u64,
    artifacts: &Arc<dyn ArtifactStore>,
) -> Result<Vec<FileEntry>, StageError> {
    let mut left = bytes_max;
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        let opened = {
            let (tree, name) = (Arc::clone(tree), name.clone());
            blocking(move || {
                tree.open_file(name.as_str(), left).map_err(|refused| {
                    StageError::Refused(vec![(name.as_str().to_owned(), refused)])
                })
            })
            .await?
        };
        let stored = artifacts
            .put_reader(Box::new(BoundedReader::new(opened, left)))
            .await;
        let stored = stored.map_err(|error| blame(error, &name))?;
        left = left.saturating_sub(stored.size_bytes);
        files.push(FileEntry {
            name,
            digest: stored.digest,
            size_bytes: stored.size_bytes,
        });
    }
    Ok(files)
}

/// A file that cannot be read to its end is its writer's fault; all else is the store's.
fn blame(error: StoreError, name: &FileName) -> StageError {
    match error {
        StoreError::Source { source } => {
            let source = std::io::Error::other(source);
            StageError::Refused(vec![(
                name.to_string(),
                Refused::Io {
                    name: name.to_string(),
                    source,
                },
            )])
        }
        error => StageError::Store(error),
    }
}

fn find(
    outgoing: &std::path::Path,
    texts: &[(String, String)],
) -> Result<(Arc<Tree>, Places), StageError> {
    let refuse_all = |source| {
        StageError::Refused(vec![(
            String::new(),
            Refused::Io {
                name: "outgoing".into(),
                source,
            },
        )])
    };
    let tree = Tree::open(outgoing).map_err(refuse_all)?;
    let (mut places, mut refused) = (Places::new(), Vec::new());
    for (pointer, text) in texts {
        let Ok(name) = FileName::parse(Directory::Outgoing.relative(text)) else {
            continue;
        };
        match find_one(&tree, &name) {
            Ok(names) => {
                for name in names {
                    places.entry(name).or_insert_with(|| pointer.clone());
                }
            }
            Err(Refused::Missing { .. }) => (),
            Err(reason) => refused.push((pointer.clone(), reason)),
        }
        if places.len() > FILES_MAX {
            refused.push((pointer.clone(), Refused::TooMany));
            break;
        }
    }
    if refused.is_empty() {
        Ok((Arc::new(tree), places))
    } else {
        Err(StageError::Refused(refused))
    }
}

/// The files that `name` stands for.
fn find_one(tree: &Tree, name: &FileName) -> Result<Vec<FileName>, Refused> {
    if tree.kind(name.as_str()) == Some(Kind::Directory) {
        let listing = tree.walk(name.as_str())?;
        let names = listing.files().cloned().collect();
        // A directory is handed over whole or not at all.
        return match listing.refused.into_iter().next() {
            Some(refused) => Err(refused),
            None => Ok(names),
        };
    }
    // Opened here only to tell all that is wrong at once.
    tree.open_file(name.as_str(), u64::MAX)?;
    Ok(vec![name.clone()])
}

/// All texts of `value` with their JSON pointers, sorted by them.
fn texts_of(value: &Value) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    let mut pending = vec![(String::new(), value)];
    while let Some((pointer, value)) = pending.pop() {
        match value {
            Value::String(text) => texts.push((pointer, text.clone())),
            Value::Array(items) => {
                pending.extend(
                    items
                        .iter()
                        .enumerate()
                        .map(|(index, item)| (format!("{pointer}/{index}"), item)),
                );
            }
            Value::Object(fields) => {
                let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
                pending.extend(
                    fields
                        .iter()
                        .map(|(key, item)| (format!("{pointer}/{}", escape(key)), item)),
                );
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => (),
        }
    }
    texts.sort();
    texts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(
        arguments: &Value,
        prepare: impl Fn(&std::path::Path),
    ) -> Result<Vec<String>, Vec<String>> {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        match find(directory.path(), &texts_of(arguments)) {
            Ok((_, places)) => Ok(places.keys().map(ToString::to_string).collect()),
            Err(StageError::Refused(refused)) => Err(refused
                .into_iter()
                .map(|(pointer, reason)| format!("{pointer}: {reason}"))
                .collect()),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn names_are_found_at_any_depth_and_with_any_prefix() {
        let arguments = json!({"a": "one.txt", "b": {"c": ["/io/handoff/outgoing/two.txt", "./three.txt", 7]}, "d": "words"});
        let names = found(&arguments, |path| {
            for name in ["one.txt", "two.txt", "three.txt", "four.txt"] {
                std::fs::write(path.join(name), name).unwrap();
            }
        });
        assert_eq!(names.unwrap(), ["one.txt", "three.txt", "two.txt"]);
    }

    #[test]
    fn a_directory_stands_for_its_files() {
        let names = found(&json!({"pages": "pages"}), |path| {
            std::fs::create_dir_all(path.join("pages/deep")).unwrap();
            std::fs::write(path.join("pages/1.txt"), "").unwrap();
            std::fs::write(path.join("pages/deep/2.txt"), "").unwrap();
        });
        assert_eq!(names.unwrap(), ["pages/1.txt", "pages/deep/2.txt"]);
    }

    #[test]
    fn all_that_is_refused_is_told_at_once() {
        let arguments = json!({"b": ["fine", "link"], "a": "one"});
        let refused = found(&arguments, |path| {
            std::os::unix::fs::symlink("/etc/hostname", path.join("link")).unwrap();
            std::fs::write(path.join("one"), "").unwrap();
            std::fs::hard_link(path.join("one"), path.join("two")).unwrap();
        });
        let refused = refused.unwrap_err();
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].starts_with("/a: one is linked"), "{refused:?}");
        assert!(refused[1].starts_with("/b/1: link leads"), "{refused:?}");
    }

    #[test]
    fn what_is_found_while_storing_is_told_of_the_argument() {
        let places = Places::from([("a.txt".parse().unwrap(), "/x/0".to_owned())]);
        let refused = vec![("a.txt".to_owned(), Refused::TooMany)];
        match at_places(StageError::Refused(refused), &places) {
            StageError::Refused(refused) => assert_eq!(refused[0].0, "/x/0"),
            error @ StageError::Store(_) => panic!("{error}"),
        }
    }

    #[test]
    fn a_link_is_refused_with_its_place() {
        let refused = found(&json!({"x": {"y~/z": "link"}}), |path| {
            std::os::unix::fs::symlink("/etc/hostname", path.join("link")).unwrap();
        });
        let refused = refused.unwrap_err();
        assert_eq!(refused.len(), 1);
        assert!(
            refused[0].starts_with("/x/y~0~1z: link leads out"),
            "{refused:?}"
        );
    }
}
