//! The volumes that an image declares. In a container each is a directory of the attempt, which begins with the files
//! that the image has there, as with `docker run`: the limit on the disk counts it, and the node removes it. A volume of
//! the engine would escape the limit, and a failed removal would leave it behind.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use aod_ports::BoxError;
use aod_ports::container_runtime::{RuntimeError, SECRETS_DIRECTORY};

use crate::creation::{WORKSPACE, refused};
use crate::engine::{CallError, Engine};
use crate::image::ImageFacts;
use crate::image::look::{Found, Look};

const ACTION: &str = "preparing the volumes of an image";

/// Maximum size of the files that an image has in one volume, as an archive: a node has it in memory while it starts
/// the container.
pub(crate) const CONTENT_SIZE_BYTES_MAX: usize = 16 << 20;

/// Mode of a volume whose image is made for root, or has no directory there.
const MODE_FOR_ALL: u32 = 0o1777;

/// Directories below which no volume can be mounted. Source: runc, `libcontainer/rootfs_linux.go`, `checkProcMount`; the
/// engine mounts `/sys` read-only.
const OF_KERNEL: [&str; 2] = ["/proc", "/sys"];

/// Directories of AOD below which no volume is permitted.
const OF_AOD: &str = "/.aod";

/// Directories in which a capsule may write anyway: a volume there or below adds nothing.
const WRITABLE: [&str; 2] = [WORKSPACE, "/io"];

/// Directories of memory: a volume there adds nothing.
const OF_MEMORY: [&str; 2] = ["/tmp", SECRETS_DIRECTORY];

/// The volumes that need a directory, each once, as plain absolute paths.
///
/// # Errors
/// [`RuntimeError::ImageRefused`] for a path where no container can have a volume.
pub(crate) fn paths(image: &ImageFacts) -> Result<Vec<String>, RuntimeError> {
    let mut paths = Vec::new();
    for volume in &image.volumes {
        let path = plain(volume).ok_or_else(|| {
            refused(&format!(
                "the image declares a volume at {volume:?}, expected an absolute path without \"..\""
            ))
        })?;
        let is_within = |place: &&str| Path::new(&path).starts_with(place);
        if path == "/" || is_within(&OF_AOD) || OF_KERNEL.iter().any(is_within) {
            return Err(refused(&format!(
                "the image declares a volume at {volume:?}, where a container cannot have one; remove this VOLUME"
            )));
        }
        let is_given = WRITABLE.iter().any(is_within) || OF_MEMORY.contains(&path.as_str());
        if !is_given && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// The path without empty parts and `.`; none for a relative path, or one with `..`.
fn plain(path: &str) -> Option<String> {
    let mut parts = Path::new(path).components();
    if parts.next() != Some(Component::RootDir) {
        return None;
    }
    let mut plain = String::new();
    for part in parts {
        let Component::Normal(name) = part else {
            return None;
        };
        plain.push('/');
        plain.push_str(name.to_str()?);
    }
    Some(if plain.is_empty() {
        "/".to_owned()
    } else {
        plain
    })
}

/// The directory of the volume with this number below `directory`: it has the last name of the volume's path, as in the
/// engine's archives.
pub(crate) fn source(directory: &Path, number: usize, path: &str) -> PathBuf {
    let name = path.rsplit('/').next().unwrap_or_default();
    directory.join(number.to_string()).join(name)
}

/// Makes the directories of the volumes at `paths` below `directory`, with the files of the image. `look` names the
/// container in which the node looks at the image.
pub(crate) async fn make(
    engine: &Engine,
    look: &str,
    (image, facts): (&str, &ImageFacts),
    paths: &[String],
    directory: &Path,
) -> Result<(), RuntimeError> {
    if paths.is_empty() {
        return Ok(());
    }
    let contents = contents(engine, look, image, paths).await?;
    let is_for_root = facts.is_for_root();
    let (directory, paths) = (directory.to_owned(), paths.to_vec());
    let made = tokio::task::spawn_blocking(move || {
        let volumes = paths.iter().zip(contents).enumerate();
        for (number, (path, content)) in volumes {
            make_one(&directory, number, path, content.as_deref(), is_for_root)?;
        }
        Ok::<_, io::Error>(())
    });
    let source: BoxError = match made.await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) if is_of_image(&error) => {
            return Err(refused(&format!(
                "the files of the image in its volumes cannot be copied: {error}"
            )));
        }
        Ok(Err(error)) => error.into(),
        Err(error) => error.into(),
    };
    Err(RuntimeError::Engine {
        action: ACTION,
        source,
    })
}

/// Whether the image has files that no directory of a host can have. The library of archives has the kind `Other` for
/// them.
fn is_of_image(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidFilename | ErrorKind::InvalidInput | ErrorKind::Other
    )
}

/// What the image has at each path: an archive, or none.
async fn contents(
    engine: &Engine,
    look: &str,
    image: &str,
    paths: &[String],
) -> Result<Vec<Option<Vec<u8>>>, RuntimeError> {
    let failed = |error: CallError| error.during(ACTION);
    let look = Look::at(engine, look, image).await.map_err(failed)?;
    let mut contents = Vec::new();
    for path in paths {
        contents.push(content(&look, path).await);
    }
    look.end().await.map_err(failed)?;
    contents.into_iter().collect()
}

/// # Errors
/// [`RuntimeError::ImageRefused`] if the image has too much there.
pub(crate) async fn content(look: &Look<'_>, path: &str) -> Result<Option<Vec<u8>>, RuntimeError> {
    let failed = |error: CallError| error.during(ACTION);
    let Some(Found::Directory(_)) = look.stat(path).await.map_err(failed)? else {
        return Ok(None);
    };
    let archive = look.archive(path, CONTENT_SIZE_BYTES_MAX);
    let archive = archive.await.map_err(failed)?.ok_or_else(|| {
        refused(&format!(
            "the image has more than {} MiB in its volume {path}; remove this VOLUME, or have fewer files there",
            CONTENT_SIZE_BYTES_MAX >> 20
        ))
    })?;
    Ok(Some(archive))
}

fn make_one(
    directory: &Path,
    number: usize,
    path: &str,
    content: Option<&[u8]>,
    is_for_root: bool,
) -> io::Result<()> {
    let volume = source(directory, number, path);
    let parent = directory.join(number.to_string());
    // An earlier try of the same launch may have made it.
    match fs::remove_dir_all(&parent) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => (),
    }
    DirBuilder::new().mode(0o755).create(&parent)?;
    if let Some(content) = content {
        let mut archive = tar::Archive::new(content);
        archive.set_preserve_permissions(true);
        archive.set_preserve_mtime(true);
        // Another user than root owns what it creates, and capsules run as this user then.
        archive.set_preserve_ownerships(rustix::process::geteuid().is_root());
        archive.unpack(&parent)?;
        if !is_for_root {
            return Ok(());
        }
    } else {
        DirBuilder::new().create(&volume)?;
    }
    fs::set_permissions(&volume, Permissions::from_mode(MODE_FOR_ALL))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths_of(volumes: &[&str]) -> Option<Vec<String>> {
        let volumes = volumes.iter().map(|&path| path.to_owned()).collect();
        let image = ImageFacts {
            volumes,
            ..ImageFacts::default()
        };
        paths(&image).ok()
    }

    #[test]
    fn volumes_are_plain_paths_outside_directories_of_aod() {
        let volumes = [
            "/data/",
            "/./data",
            "//srv/./x",
            "/io/output",
            "/workspace",
            "/./tmp",
        ];
        let expected = ["/data", "/srv/x"].map(str::to_owned).to_vec();
        assert_eq!(paths_of(&volumes), Some(expected));
        for path in [
            "/.aod/bin",
            "/",
            "data",
            "/x/../.aod",
            "/proc/x",
            "/./sys",
            "",
        ] {
            assert_eq!(paths_of(&[path]), None, "{path}");
        }
    }

    #[test]
    fn volume_begins_with_the_files_of_the_image() {
        let root = tempfile::tempdir().unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        for (name, mode, kind) in [
            ("data/", 0o750, tar::EntryType::Directory),
            ("data/empty", 0o640, tar::EntryType::Regular),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_uid(u64::from(rustix::process::geteuid().as_raw()));
            header.set_gid(u64::from(rustix::process::getegid().as_raw()));
            header.set_size(0);
            archive.append_data(&mut header, name, &[][..]).unwrap();
        }
        let archive = archive.into_inner().unwrap();
        let mode = |number: usize, name: &str| {
            let path = source(root.path(), number, "/srv/data").join(name);
            fs::metadata(path).unwrap().permissions().mode() & 0o7777
        };
        for (number, is_for_root, expected) in [(0, false, 0o750), (1, true, 0o1777)] {
            make_one(
                root.path(),
                number,
                "/srv/data",
                Some(&archive),
                is_for_root,
            )
            .unwrap();
            assert_eq!(mode(number, ""), expected);
            assert_eq!(mode(number, "empty"), 0o640);
        }
        make_one(root.path(), 1, "/srv/data", None, false).unwrap();
        assert_eq!(mode(1, ""), 0o1777);
        assert!(!source(root.path(), 1, "/srv/data").join("empty").exists());
    }
}
