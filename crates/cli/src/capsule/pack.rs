//! Packs a directory as a tar file that depends on nothing but names, bytes, links and who may execute.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aod_domain::file_name::FileName;
use tar::{Builder, EntryType, Header};
use tempfile::NamedTempFile;

use super::wheel;
use crate::failure::Failure;

/// What tools leave in a directory: different on each machine, and never part of a capsule.
const LEFT_OUT: [&str; 7] = [
    ".DS_Store",
    ".git",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
];

/// The tests of a capsule. A change of them makes no other image, unless its recipe names them.
const TESTS: &str = "tests";

/// Entries of a package; the gateway takes no more.
const ENTRIES_MAX: usize = 20_000;

/// Packs `directory` into a temporary file.
pub(crate) fn pack(directory: &Path) -> Result<NamedTempFile, Failure> {
    let failed = |error: io::Error| {
        Failure::usage(format!("{} cannot be packed", directory.display())).because(&error)
    };
    let file = NamedTempFile::new().map_err(|error| {
        Failure::environment("there is no room for a temporary file").because(&error)
    })?;
    let mut builder = Builder::new(BufWriter::new(file.as_file()));
    let mut entries = entries(directory)?;
    if !wants_tests(directory) {
        entries.retain(|entry| {
            let mut parts = entry.name.as_str().split('/');
            parts.next() != Some(TESTS)
        });
    }
    let mut added = added(directory, &entries)?;
    for entry in entries {
        // All names are sorted, whether a directory has its wheel or gets it here.
        let before = added.partition_point(|(name, _)| name.as_str() < entry.name.as_str());
        for (name, bytes) in added.drain(..before) {
            append_own(&mut builder, &name, bytes).map_err(failed)?;
        }
        append(&mut builder, directory, &entry).map_err(failed)?;
    }
    for (name, bytes) in added {
        append_own(&mut builder, &name, bytes).map_err(failed)?;
    }
    builder
        .into_inner()
        .and_then(|mut writer| writer.flush())
        .map_err(failed)?;
    Ok(file)
}

/// Whether the image is made with the tests.
fn wants_tests(directory: &Path) -> bool {
    let recipe = fs::read_to_string(directory.join("Dockerfile"));
    recipe.is_ok_and(|recipe| {
        let mut words = recipe.split(|letter: char| !letter.is_alphanumeric());
        words.any(|word| word == TESTS)
    })
}

/// Something in a capsule's directory.
#[derive(Debug)]
pub(super) struct Entry {
    /// With the directory.
    path: PathBuf,
    /// Without it.
    pub(super) name: FileName,
    metadata: Metadata,
}

impl Entry {
    /// Whether it is a regular file of at most `bytes_max`.
    pub(super) fn is_file(&self, bytes_max: u64) -> bool {
        self.metadata.is_file() && self.metadata.len() <= bytes_max
    }
}

/// Everything in `directory`, sorted by name. Links are taken as they are.
pub(super) fn entries(directory: &Path) -> Result<Vec<Entry>, Failure> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(current) = pending.pop() {
        let unreadable = |error: io::Error| {
            Failure::usage(format!("{} cannot be read", current.display())).because(&error)
        };
        for entry in fs::read_dir(&current).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.file_name().is_some_and(is_left_out) {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).map_err(unreadable)?;
            if metadata.is_dir() {
                pending.push(path.clone());
            }
            let name = path
                .strip_prefix(directory)
                .unwrap_or(&path)
                .as_os_str()
                .as_encoded_bytes();
            let name = FileName::from_bytes(name).map_err(|error| {
                Failure::usage(format!("{} cannot be part of a capsule", path.display()))
                    .because(&error)
            })?;
            found.push(Entry {
                path,
                name,
                metadata,
            });
            if found.len() > ENTRIES_MAX {
                return Err(Failure::usage(format!(
                    "{} has more than {ENTRIES_MAX} files",
                    directory.display()
                )));
            }
        }
    }
    found.sort_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
    Ok(found)
}

/// The regular files below `directory`, by name; what tools leave there is none of them.
pub(super) fn files(directory: &Path) -> Result<Vec<(FileName, PathBuf)>, Failure> {
    let entries = entries(directory)?.into_iter();
    let files = entries.filter(|entry| entry.metadata.is_file());
    Ok(files.map(|entry| (entry.name, entry.path)).collect())
}

fn is_left_out(name: &OsStr) -> bool {
    LEFT_OUT.iter().any(|left_out| name == *left_out)
        || Path::new(name).extension().is_some_and(|end| end == "pyc")
}

/// A name, with a slash at its end if it is a directory's, and the bytes of a file.
type Added = (String, Option<&'static [u8]>);

/// What the package has beside the directory: the wheel of the SDK, if the image is made with it and
/// the directory has none. Sorted.
fn added(directory: &Path, entries: &[Entry]) -> Result<Vec<Added>, Failure> {
    let has = |wanted: &str| entries.iter().any(|entry| entry.name.as_str() == wanted);
    if !has("Dockerfile")
        || entries
            .iter()
            .any(|entry| wheel::is_one(entry.name.as_str()))
    {
        return Ok(Vec::new());
    }
    let path = directory.join("Dockerfile");
    let dockerfile = fs::read(&path).map_err(|error| {
        Failure::usage(format!("{} cannot be read", path.display())).because(&error)
    })?;
    if !wheel::is_wanted(&String::from_utf8_lossy(&dockerfile)) {
        return Ok(Vec::new());
    }
    let mut added = Vec::new();
    if !has(wheel::DIRECTORY) {
        added.push((format!("{}/", wheel::DIRECTORY), None));
    }
    let name = format!("{}/{}", wheel::DIRECTORY, wheel::NAME);
    added.push((name, Some(wheel::BYTES)));
    Ok(added)
}

fn append_own(
    builder: &mut Builder<impl io::Write>,
    name: &str,
    bytes: Option<&[u8]>,
) -> io::Result<()> {
    let mut header = plain_header(false);
    if bytes.is_none() {
        header.set_entry_type(EntryType::Directory);
    }
    let bytes = bytes.unwrap_or_default();
    header.set_size(bytes.len() as u64);
    builder.append_data(&mut header, name, bytes)
}

/// Of a regular file of no bytes; nothing in it tells whose the file is, or when it was made.
fn plain_header(is_executable: bool) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header.set_mode(if is_executable { 0o755 } else { 0o644 });
    header
}

fn append(
    builder: &mut Builder<impl io::Write>,
    directory: &Path,
    entry: &Entry,
) -> io::Result<()> {
    let metadata = &entry.metadata;
    let mut header = plain_header(metadata.permissions().mode() & 0o100 != 0);
    if metadata.is_dir() {
        header.set_entry_type(EntryType::Directory);
        return builder.append_data(&mut header, format!("{}/", entry.name), io::empty());
    }
    if metadata.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        return builder.append_link(
            &mut header,
            entry.name.as_str(),
            fs::read_link(&entry.path)?,
        );
    }
    if !metadata.is_file() {
        let shown = entry
            .path
            .strip_prefix(directory)
            .unwrap_or(&entry.path)
            .display();
        return Err(io::Error::other(format!(
            "{shown} is neither a file nor a directory nor a link"
        )));
    }
    header.set_size(metadata.len());
    // A file that grows meanwhile must not tear the package apart.
    let bytes = io::Read::take(File::open(&entry.path)?, metadata.len());
    builder.append_data(&mut header, entry.name.as_str(), bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(root: &Path, name: &str, bytes: &str, mode: u32) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }

    /// The package of a directory that is written in the order of `names`.
    fn packed(names: &[&str], mode: u32) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        for name in names {
            write(directory.path(), name, name, mode);
        }
        symlink("Dockerfile", directory.path().join("link")).unwrap();
        fs::read(pack(directory.path()).unwrap().path()).unwrap()
    }

    #[test]
    fn equal_directories_are_equal_bytes() {
        let long = "x/".repeat(14) + &"y".repeat(150);
        let one = packed(&["Dockerfile", "src/main.py", &long], 0o644);
        let other = packed(
            &[
                &long,
                "src/main.py",
                "Dockerfile",
                "__pycache__/a",
                "src/b.pyc",
                ".git/HEAD",
            ],
            0o600,
        );
        assert_eq!(one, other);
        assert_ne!(one, packed(&["Dockerfile", "src/main.py", &long], 0o755));
    }

    #[test]
    fn names_are_sorted_and_owners_and_times_are_not_told() {
        let bytes = packed(&["b", "a/z", "a.txt"], 0o644);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut names = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(
                (
                    header.uid().unwrap(),
                    header.gid().unwrap(),
                    header.mtime().unwrap()
                ),
                (0, 0, 0)
            );
            names.push(entry.path().unwrap().to_string_lossy().into_owned());
        }
        assert_eq!(names, ["a/", "a.txt", "a/z", "b", "link"]);
    }

    #[test]
    fn the_wheel_is_added_where_it_is_wanted_and_missing() {
        let names = |files: &[(&str, &str)]| {
            let directory = tempfile::tempdir().unwrap();
            for (name, text) in files {
                write(directory.path(), name, text, 0o644);
            }
            let bytes = fs::read(pack(directory.path()).unwrap().path()).unwrap();
            let mut archive = tar::Archive::new(bytes.as_slice());
            let entries = archive.entries().unwrap();
            let name = |entry: tar::Entry<'_, _>| entry.path().unwrap().display().to_string();
            entries
                .map(|entry| name(entry.unwrap()))
                .collect::<Vec<_>>()
        };
        let recipe = ("Dockerfile", "COPY vendor/aod_capsule-*.whl /");
        let own = format!("vendor/{}", wheel::NAME);
        assert_eq!(
            names(&[recipe, ("src/a", ""), ("z", "")]),
            ["Dockerfile", "src/", "src/a", "vendor/", own.as_str(), "z"]
        );
        assert_eq!(
            names(&[recipe, ("vendor/a", ""), ("vendor/z", "")]),
            [
                "Dockerfile",
                "vendor/",
                "vendor/a",
                own.as_str(),
                "vendor/z"
            ]
        );
        let other = "vendor/aod_capsule-0.0.1-py3-none-any.whl";
        assert_eq!(
            names(&[recipe, (other, "")]),
            ["Dockerfile", "vendor/", other]
        );
        assert_eq!(names(&[("Dockerfile", "FROM scratch")]), ["Dockerfile"]);
    }

    #[test]
    fn what_is_no_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let _socket =
            std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
        let failure = pack(directory.path()).unwrap_err();
        assert!(
            failure
                .render()
                .contains("socket is neither a file nor a directory nor a link"),
            "{}",
            failure.render()
        );
    }
}
