//! Lists the entries of a directory that belong to its package, and the entries that do not.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use aod_domain::file_name::FileName;

use crate::Error;
use crate::ignore::{Reason, Rules, ancestors};

/// Maximum number of entries in a package; the gateway rejects more.
const ENTRIES_MAX: usize = 20_000;

/// Maximum number of names in [`Contents::left_out`]: they fit on one line.
const NAMES_MAX: usize = 6;

/// An entry of a directory.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Path, including the directory.
    pub(crate) path: PathBuf,
    /// Path relative to the directory.
    pub(crate) name: FileName,
    pub(crate) metadata: Metadata,
}

impl Entry {
    /// Reads `path`, an entry of `directory`.
    fn read(directory: &Path, path: PathBuf) -> Result<Self, Error> {
        let metadata = fs::symlink_metadata(&path);
        let metadata = metadata.map_err(|source| Error::unreadable(&path, source))?;
        let name = path.strip_prefix(directory).unwrap_or(&path).as_os_str();
        match FileName::from_bytes(name.as_encoded_bytes()) {
            Ok(name) => Ok(Self {
                path,
                name,
                metadata,
            }),
            Err(source) => Err(Error::InvalidName { path, source }),
        }
    }

    /// Whether it is a regular file of at most `bytes_max`.
    pub(crate) fn is_file(&self, bytes_max: u64) -> bool {
        self.metadata.is_file() && self.metadata.len() <= bytes_max
    }

    pub(crate) fn is_link(&self) -> bool {
        self.metadata.is_symlink()
    }
}

/// The entries of a directory.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The entries of the package, sorted by name.
    pub(crate) entries: Vec<Entry>,
    /// The other entries, without the entries of a directory that is left out as a whole. Sorted.
    left_out: Vec<(Reason, String)>,
}

impl Contents {
    /// The entries that are left out, with reasons, in one line; none if all entries are in the package.
    pub(crate) fn left_out(&self) -> Option<String> {
        let shown = &self.left_out[..self.left_out.len().min(NAMES_MAX)];
        let groups = shown.chunk_by(|(one, _), (other, _)| one == other);
        let groups = groups.map(|group| {
            let names: Vec<&str> = group.iter().map(|(_, name)| name.as_str()).collect();
            format!("{} ({})", names.join(", "), group[0].0)
        });
        let groups: Vec<String> = groups.collect();
        let more = match self.left_out.len() - shown.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        (!groups.is_empty()).then(|| format!("left out of the image: {}{more}", groups.join(", ")))
    }

    /// Returns directories above entries of the package to the package, and sorts.
    fn return_parents(&mut self, directory: &Path) -> Result<(), Error> {
        let names = self.entries.iter().map(|entry| entry.name.as_str());
        let included: BTreeSet<String> = names.flat_map(ancestors).map(str::to_owned).collect();
        let is_included = |(_, name): &mut (Reason, String)| included.contains(name);
        for (_, name) in self.left_out.extract_if(.., is_included) {
            self.entries
                .push(Entry::read(directory, directory.join(name))?);
        }
        let whole: BTreeSet<String> = self.left_out.iter().map(|(_, name)| name.clone()).collect();
        self.left_out.retain(|(_, name)| {
            let mut above = ancestors(name).filter(|above| above != name);
            !above.any(|above| whole.contains(above))
        });
        self.left_out.sort();
        self.entries
            .sort_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
        Ok(())
    }
}

/// Lists `directory` by `rules`. Links are not followed.
pub(crate) fn contents(directory: &Path, rules: &Rules) -> Result<Contents, Error> {
    let mut found = Contents::default();
    let mut pending = vec![directory.to_owned()];
    while let Some(current) = pending.pop() {
        let unreadable = |source| Error::unreadable(&current, source);
        for entry in fs::read_dir(&current).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let path = entry.path();
            let name = path.strip_prefix(directory).unwrap_or(&path);
            let name = name.to_string_lossy().into_owned();
            let reason = rules.reason(&name);
            let is_directory = entry.file_type().map_err(unreadable)?.is_dir();
            if is_directory && (reason.is_none() || rules.may_include_entries_of(&name)) {
                pending.push(path.clone());
            }
            match reason {
                Some(reason) => found.left_out.push((reason, name)),
                None => found.entries.push(Entry::read(directory, path)?),
            }
            if found.entries.len() > ENTRIES_MAX {
                return Err(Error::refused(format!(
                    "{} has more than {ENTRIES_MAX} entries",
                    directory.display()
                )));
            }
        }
    }
    found.return_parents(directory)?;
    Ok(found)
}

/// The regular files below `directory`, by name, without the entries of the built-in list.
pub(crate) fn files(directory: &Path) -> Result<Vec<(FileName, PathBuf)>, Error> {
    let entries = contents(directory, &Rules::built_in())?.entries.into_iter();
    let files = entries.filter(|entry| entry.metadata.is_file());
    Ok(files.map(|entry| (entry.name, entry.path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the names in the package of a directory, and what is left out.
    fn check(files: &[(&str, &str)], included: &[&str], left_out: &[&str]) {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        for (name, text) in files {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (rules, problems) = Rules::read(directory).unwrap();
        assert_eq!(problems, []);
        let contents = contents(directory, &rules).unwrap();
        let names = contents.entries.iter().map(|entry| entry.name.as_str());
        let names = names.filter(|name| !name.starts_with("Dockerfile") && *name != IGNORE);
        assert_eq!(names.collect::<Vec<_>>(), included, "{files:?}");
        let found = contents.left_out.iter();
        let found = found.map(|(reason, name)| format!("{name} ({reason})"));
        assert_eq!(found.collect::<Vec<_>>(), left_out, "{files:?}");
    }

    const IGNORE: &str = ".dockerignore";
    const OTHER: &str = "Dockerfile.dockerignore";

    #[test]
    fn dockerignore_keeps_files_out_of_the_package() {
        let lines = "\u{feff}# comment\n\n  .env  \r\n/keys/\n**/*.log\n #a\n";
        check(
            &[
                (IGNORE, lines),
                (".env", ""),
                ("keys/a.pem", ""),
                ("keys/b/c.pem", ""),
                ("src/.env", ""),
                ("src/x/a.log", ""),
                ("#a", ""),
                ("# comment", ""),
            ],
            &["# comment", "src", "src/.env", "src/x"],
            &[
                ".env (.dockerignore:3)",
                "keys (.dockerignore:4)",
                "src/x/a.log (.dockerignore:5)",
                "#a (.dockerignore:6)",
            ],
        );
    }

    #[test]
    fn exception_in_dockerignore_brings_a_file_back() {
        let secret = ("secret/a/public.txt", "");
        let files = [secret, ("secret/key", ""), ("b", "")];
        let with = |lines| [files.as_slice(), &[(IGNORE, lines)]].concat();
        check(
            &with("secret\n! /secret/a/public.txt"),
            &["b", "secret", "secret/a", "secret/a/public.txt"],
            &["secret/key (.dockerignore:1)"],
        );
        check(
            &with("*\n!**/*.txt\n"),
            &["secret", "secret/a", "secret/a/public.txt"],
            &["b (.dockerignore:1)", "secret/key (.dockerignore:1)"],
        );
        // The last matching line decides.
        check(
            &with("!secret/key\nsecret\n!other\n"),
            &["b"],
            &["secret (.dockerignore:2)"],
        );
        check(
            &with("**\n!secret\nsecret/a\n"),
            &["secret", "secret/key"],
            &["b (.dockerignore:1)", "secret/a (.dockerignore:3)"],
        );
    }

    #[test]
    fn dockerfile_dockerignore_wins() {
        check(
            &[(IGNORE, "a\n["), (OTHER, "b\n"), ("a", ""), ("b", "")],
            &["a"],
            &["b (Dockerfile.dockerignore:1)"],
        );
    }

    #[test]
    fn files_that_aod_reads_are_never_left_out() {
        check(
            &[
                (IGNORE, "**\n"),
                ("Dockerfile", ""),
                ("agent.yaml", ""),
                ("schema.json", ""),
                ("tools.yaml", ""),
                ("src/agent.yaml", ""),
            ],
            &["agent.yaml", "schema.json", "tools.yaml"],
            &["src (.dockerignore:1)"],
        );
    }

    #[test]
    fn built_in_list_yields_to_exceptions_for_its_own_entries() {
        let files = [
            ("src/a.py", ""),
            ("src/a.pyc", ""),
            ("src/__pycache__/a.pyc", ""),
            ("tests/a", ""),
            ("tests/b", ""),
            ("x/tests/a", ""),
            (".git/HEAD", ""),
        ];
        let with = |lines| [files.as_slice(), &[(IGNORE, lines)]].concat();
        let others = ["src", "src/a.py", "x", "x/tests", "x/tests/a"];
        let left_out = [
            "tests (not in the Dockerfile)",
            ".git (built-in list)",
            "src/__pycache__ (built-in list)",
            "src/a.pyc (built-in list)",
        ];
        check(&files, &others, &left_out);
        check(&with("*\n!src\n!x\n!Dockerfile\n"), &others, &left_out);
        let included = ["src", "src/a.py", "src/a.pyc", "tests", "tests/b"];
        check(
            &with("!tests\n!**/*.pyc\ntests/a\n"),
            &[included.as_slice(), &others[2..]].concat(),
            &[
                "tests/a (.dockerignore:3)",
                ".git (built-in list)",
                "src/__pycache__ (built-in list)",
            ],
        );
        let included = [
            ".git",
            ".git/HEAD",
            "src",
            "src/__pycache__",
            "src/__pycache__/a.pyc",
        ];
        check(
            &with("!.git/HEAD\n!**/__pycache__\n!**/*.pyc\n!tests/b\n"),
            &[
                included.as_slice(),
                &["src/a.py", "src/a.pyc", "tests", "tests/b"],
                &others[2..],
            ]
            .concat(),
            &["tests/a (not in the Dockerfile)"],
        );
        check(
            &[("Dockerfile", "COPY tests /tests"), ("tests/a", "")],
            &["tests", "tests/a"],
            &[],
        );
    }

    #[test]
    fn left_out_entries_fit_on_one_line() {
        let mut contents = Contents::default();
        assert_eq!(contents.left_out(), None);
        let line = |number| Reason::Line {
            file: IGNORE,
            number,
        };
        let found = [
            (Reason::Tests, "tests"),
            (line(1), ".env"),
            (line(2), "a.log"),
            (line(2), "b.log"),
            (Reason::BuiltIn, ".git"),
            (Reason::BuiltIn, "a.pyc"),
            (Reason::BuiltIn, "b.pyc"),
        ];
        contents.left_out = found.map(|(reason, name)| (reason, name.to_owned())).into();
        assert_eq!(
            contents.left_out().unwrap(),
            "left out of the image: tests (not in the Dockerfile), .env (.dockerignore:1), a.log, b.log (.dockerignore:2), .git, a.pyc (built-in list) and 1 more"
        );
    }

    #[test]
    fn invalid_name_counts_only_in_the_package() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;

        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        fs::write(directory.join(OsStr::from_bytes(b"a\xff")), "").unwrap();
        assert!(matches!(
            contents(directory, &Rules::built_in()),
            Err(Error::InvalidName { .. })
        ));
        fs::write(directory.join(IGNORE), "a?").unwrap();
        let (rules, _) = Rules::read(directory).unwrap();
        assert_eq!(contents(directory, &rules).unwrap().entries.len(), 1);
    }
}
