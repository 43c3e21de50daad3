//! Packs a directory as a tar file that depends only on names, bytes, links and executable bits.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tar::{Builder, EntryType, Header};
use tempfile::NamedTempFile;

use super::contents::{Entry, contents};
use super::ignore::Rules;
use super::validate::refuse;
use super::{Error, wheel};

/// The time of all entries: 1980-01-01T00:00:00Z. The ZIP format, and thus wheels, cannot store earlier times.
const ENTRY_TIME_SECONDS: u64 = 315_532_800;

/// A packed directory.
#[derive(Debug)]
pub struct Package {
    pub file: NamedTempFile,
    /// The entries of the directory that are not in the file, with reasons, in one line; none if all are.
    pub left_out: Option<String>,
}

/// Packs `directory`.
///
/// # Errors
/// Also all invalid lines of its ignore file.
pub fn pack(directory: &Path) -> Result<Package, Error> {
    let (rules, problems) = Rules::read(directory)?;
    refuse(&problems)?;
    let contents = contents(directory, &rules)?;
    Ok(Package {
        file: write(directory, &contents.entries)?,
        left_out: contents.left_out(),
    })
}

/// Writes `entries` and the added files into a temporary file.
fn write(directory: &Path, entries: &[Entry]) -> Result<NamedTempFile, Error> {
    let failed = |source: io::Error| Error::NotPacked {
        path: directory.to_owned(),
        source,
    };
    let file = NamedTempFile::new().map_err(|source| Error::NoTemporaryFile { source })?;
    let mut builder = Builder::new(BufWriter::new(file.as_file()));
    let mut added = added(directory, entries)?;
    for entry in entries {
        // Names stay sorted, also with an added wheel.
        let before = added.partition_point(|(name, _)| name.as_str() < entry.name.as_str());
        for (name, bytes) in added.drain(..before) {
            append_own(&mut builder, &name, bytes).map_err(failed)?;
        }
        append(&mut builder, entry).map_err(failed)?;
    }
    for (name, bytes) in added {
        append_own(&mut builder, &name, bytes).map_err(failed)?;
    }
    let written = builder.into_inner().and_then(|mut writer| writer.flush());
    written.map_err(failed)?;
    Ok(file)
}

/// A name, with a slash at the end for a directory, and the bytes of a file.
type Added = (String, Option<&'static [u8]>);

/// The wheel of the SDK, if the `Dockerfile` copies it and the directory does not contain it. Sorted.
fn added(directory: &Path, entries: &[Entry]) -> Result<Vec<Added>, Error> {
    let has = |wanted: &str| entries.iter().any(|entry| entry.name.as_str() == wanted);
    let mut names = entries.iter().map(|entry| entry.name.as_str());
    if !has("Dockerfile") || names.any(wheel::is_one) {
        return Ok(Vec::new());
    }
    let path = directory.join("Dockerfile");
    let dockerfile = fs::read(&path).map_err(|source| Error::unreadable(&path, source))?;
    if !wheel::is_wanted(&String::from_utf8_lossy(&dockerfile)) {
        return Ok(Vec::new());
    }
    let mut added = Vec::new();
    if !has(wheel::DIRECTORY) {
        added.push((format!("{}/", wheel::DIRECTORY), None));
    }
    added.push((wheel::PATH.to_owned(), Some(wheel::BYTES)));
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

/// The header of an empty regular file, without an owner, with a fixed time.
fn plain_header(is_executable: bool) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(ENTRY_TIME_SECONDS);
    header.set_size(0);
    header.set_mode(if is_executable { 0o755 } else { 0o644 });
    header
}

fn append(builder: &mut Builder<impl io::Write>, entry: &Entry) -> io::Result<()> {
    let metadata = &entry.metadata;
    let mut header = plain_header(metadata.permissions().mode() & 0o100 != 0);
    if metadata.is_dir() {
        header.set_entry_type(EntryType::Directory);
        return builder.append_data(&mut header, format!("{}/", entry.name), io::empty());
    }
    if metadata.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        let target = fs::read_link(&entry.path)?;
        return builder.append_link(&mut header, entry.name.as_str(), target);
    }
    if !metadata.is_file() {
        return Err(io::Error::other(format!(
            "{} is not a file, a directory or a symbolic link",
            entry.name
        )));
    }
    header.set_size(metadata.len());
    // A file that grows during packing must not corrupt the package.
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
        fs::read(pack(directory.path()).unwrap().file.path()).unwrap()
    }

    #[test]
    fn equal_directories_pack_to_equal_bytes() {
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
    fn ignored_file_does_not_change_the_digest() {
        let bytes = |env: &str, lines: &str| {
            let directory = tempfile::tempdir().unwrap();
            write(directory.path(), ".dockerignore", lines, 0o644);
            write(directory.path(), "secret/.env", env, 0o644);
            let package = pack(directory.path()).unwrap();
            (fs::read(package.file.path()).unwrap(), package.left_out)
        };
        let (ignored, left_out) = bytes("A=1", "secret");
        assert_eq!(
            left_out.as_deref(),
            Some("left out of the image: secret (.dockerignore:1)")
        );
        assert_eq!(ignored, bytes("A=2", "secret").0);
        assert_ne!(bytes("A=1", "other").0, bytes("A=2", "other").0);
    }

    #[test]
    fn package_has_sorted_names_without_owners_and_with_the_first_time_of_zip() {
        let bytes = packed(&["b", "a/z", "a.txt"], 0o644);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut names = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            let numbers = [header.uid(), header.gid(), header.mtime()];
            assert_eq!(numbers.map(Result::unwrap), [0, 0, 315_532_800]);
            names.push(entry.path().unwrap().to_string_lossy().into_owned());
        }
        assert_eq!(names, ["a/", "a.txt", "a/z", "b", "link"]);
    }

    #[test]
    fn wheel_is_added_if_dockerfile_copies_it_and_directory_lacks_it() {
        let names = |files: &[(&str, &str)]| {
            let directory = tempfile::tempdir().unwrap();
            for (name, text) in files {
                write(directory.path(), name, text, 0o644);
            }
            let bytes = fs::read(pack(directory.path()).unwrap().file.path()).unwrap();
            let mut archive = tar::Archive::new(bytes.as_slice());
            let entries = archive.entries().unwrap();
            let name = |entry: tar::Entry<'_, _>| entry.path().unwrap().display().to_string();
            entries
                .map(|entry| name(entry.unwrap()))
                .collect::<Vec<_>>()
        };
        let recipe = ("Dockerfile", "COPY vendor/aod_capsule-*.whl /");
        assert_eq!(
            names(&[recipe, ("src/a", ""), ("z", "")]),
            ["Dockerfile", "src/", "src/a", "vendor/", wheel::PATH, "z"]
        );
        assert_eq!(
            names(&[recipe, ("vendor/a", ""), ("vendor/z", "")]),
            ["Dockerfile", "vendor/", "vendor/a", wheel::PATH, "vendor/z"]
        );
        let other = "vendor/aod_capsule-0.0.1-py3-none-any.whl";
        assert_eq!(
            names(&[recipe, (other, "")]),
            ["Dockerfile", "vendor/", other]
        );
        assert_eq!(names(&[("Dockerfile", "FROM scratch")]), ["Dockerfile"]);
    }

    #[test]
    fn pack_rejects_socket_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let _socket =
            std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
        let Err(Error::NotPacked { source, .. }) = pack(directory.path()) else {
            panic!("a socket cannot be packed");
        };
        assert_eq!(
            source.to_string(),
            "socket is not a file, a directory or a symbolic link"
        );
    }
}
