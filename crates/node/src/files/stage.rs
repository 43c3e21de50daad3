//! Stages the files of a call from `outgoing/`: copies and hashes each file once, and uses only the copy, because the
//! running caller may change the file at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use aod_domain::file_name::{Directory, FileName};
use aod_domain::run::FileEntry;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_services::program::blocking;
use serde_json::Value;

use crate::files::safe_dir::{BoundedReader, FILES_MAX, Kind, Refused, SafeDir};

/// Why staging the files of a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StageError {
    /// Fixed by the caller: places in the arguments, with reasons.
    #[error("the node refuses a file")]
    Refused(Vec<(String, Refused)>),
    /// Fixed by the operator, or by a retry.
    #[error("the node cannot store the files")]
    Store(#[from] StoreError),
}

/// Stores every file in `outgoing` that a text in `arguments` names, at any depth; a directory stands for all files in
/// it. Of these, the gateway keeps the references of the callee's schema.
///
/// At most `bytes_max` in total.
pub(crate) async fn stage(
    arguments: &Value,
    outgoing: PathBuf,
    bytes_max: u64,
    artifacts: &Arc<dyn ArtifactStore>,
) -> Result<Vec<FileEntry>, StageError> {
    let texts = texts_of(arguments);
    if texts.is_empty() || SafeDir::open(&outgoing).is_ok_and(|tree| tree.is_empty()) {
        return Ok(Vec::new());
    }
    let (tree, places) = blocking(move || find(&outgoing, &texts)).await?;
    let names = places.keys().cloned().collect();
    let stored = store_all(&tree, names, bytes_max, artifacts).await?;
    if stored.refused.is_empty() {
        Ok(stored.files)
    } else {
        Err(at_places(stored.refused, &places))
    }
}

/// The refused files with their places in the arguments.
fn at_places(refused: Vec<(FileName, Refused)>, places: &Places) -> StageError {
    let place = |name: FileName| places.get(&name).cloned().unwrap_or(name.to_string());
    let refused = refused.into_iter();
    StageError::Refused(
        refused
            .map(|(name, reason)| (place(name), reason))
            .collect(),
    )
}

/// What became of files.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) files: Vec<FileEntry>,
    pub(crate) refused: Vec<(FileName, Refused)>,
}

/// Files of the call, each with the JSON pointer of an argument that names it.
type Places = BTreeMap<FileName, String>;

/// Stores the files `names` of `tree`, at most `bytes_max` in total, except those that the node refuses.
pub(crate) async fn store_all(
    tree: &Arc<SafeDir>,
    names: BTreeSet<FileName>,
    bytes_max: u64,
    artifacts: &Arc<dyn ArtifactStore>,
) -> Result<Stored, StoreError> {
    let mut left = bytes_max;
    let mut all = Stored::default();
    for name in names {
        let opened = {
            let (tree, name) = (Arc::clone(tree), name.clone());
            blocking(move || tree.open_file(name.as_str(), left)).await
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(refused) => {
                all.refused.push((name, refused));
                continue;
            }
        };
        let reader = BoundedReader::new(opened, left);
        match artifacts.put_reader(Box::new(reader)).await {
            Ok(stored) => {
                left = left.saturating_sub(stored.size_bytes);
                all.files.push(FileEntry {
                    name,
                    digest: stored.digest,
                    size_bytes: stored.size_bytes,
                });
            }
            // The capsule's fault: the node cannot read the file to its end.
            Err(StoreError::Source { source }) => {
                let source = std::io::Error::other(source);
                let reason = Refused::Io {
                    name: name.to_string(),
                    source,
                };
                all.refused.push((name, reason));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn find(
    outgoing: &std::path::Path,
    texts: &[(String, String)],
) -> Result<(Arc<SafeDir>, Places), StageError> {
    let refuse_all = |source| {
        let name = "outgoing".into();
        StageError::Refused(vec![(String::new(), Refused::Io { name, source })])
    };
    let tree = SafeDir::open(outgoing).map_err(refuse_all)?;
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
fn find_one(tree: &SafeDir, name: &FileName) -> Result<Vec<FileName>, Refused> {
    if tree.kind(name.as_str()) == Some(Kind::Directory) {
        let listing = tree.walk(name.as_str());
        let names = listing.files().cloned().collect();
        // The node hands over a directory completely or not at all.
        return match listing.refused.into_iter().next() {
            Some(refused) => Err(refused),
            None => Ok(names),
        };
    }
    // Opened only to report all problems together.
    tree.open_file(name.as_str(), u64::MAX)?;
    Ok(vec![name.clone()])
}

/// All texts of `value` with their JSON pointers, sorted by pointer.
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
    fn named_files_are_found_at_any_depth_with_any_prefix() {
        let arguments = json!({"a": "one.txt", "b": {"c": ["/io/handoff/outgoing/two.txt", "./three.txt", 7]}, "d": "words"});
        let names = found(&arguments, |path| {
            for name in ["one.txt", "two.txt", "three.txt", "four.txt"] {
                std::fs::write(path.join(name), name).unwrap();
            }
        });
        assert_eq!(names.unwrap(), ["one.txt", "three.txt", "two.txt"]);
    }

    #[test]
    fn directory_stands_for_all_its_files() {
        let names = found(&json!({"pages": "pages"}), |path| {
            std::fs::create_dir_all(path.join("pages/deep")).unwrap();
            std::fs::write(path.join("pages/1.txt"), "").unwrap();
            std::fs::write(path.join("pages/deep/2.txt"), "").unwrap();
        });
        assert_eq!(names.unwrap(), ["pages/1.txt", "pages/deep/2.txt"]);
    }

    #[test]
    fn all_refused_files_are_reported_together() {
        let arguments = json!({"b": ["fine", "link"], "a": "one"});
        let refused = found(&arguments, |path| {
            std::os::unix::fs::symlink("/etc/hostname", path.join("link")).unwrap();
            std::fs::write(path.join("one"), "").unwrap();
            std::fs::hard_link(path.join("one"), path.join("two")).unwrap();
        });
        let refused = refused.unwrap_err();
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].starts_with("/a: one has more"), "{refused:?}");
        assert!(refused[1].starts_with("/b/1: link leads"), "{refused:?}");
    }

    #[test]
    fn refusal_while_storing_names_the_argument() {
        let places = Places::from([("a.txt".parse().unwrap(), "/x/0".to_owned())]);
        let refused = vec![("a.txt".parse().unwrap(), Refused::TooMany)];
        match at_places(refused, &places) {
            StageError::Refused(refused) => assert_eq!(refused[0].0, "/x/0"),
            error @ StageError::Store(_) => panic!("{error}"),
        }
    }

    #[test]
    fn symbolic_link_is_refused_with_its_pointer() {
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
