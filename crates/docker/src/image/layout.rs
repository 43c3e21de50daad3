//! What an image may have at the paths where its containers get mounts, and what a container cannot take from it:
//! reported to the author at the build, instead of to callers later.

use std::collections::BTreeMap;

use aod_gate::protocol::{BINARY_DIRECTORY, CHANNEL_DIRECTORY};
use aod_ports::container_runtime::{RuntimeError, SECRETS_DIRECTORY};

use super::look::{Found, Look};
use super::{ImageFacts, users};
use crate::creation::refused;
use crate::engine::{CallError, Engine};
use crate::volumes;

/// Directories that every container gets, or may get.
const DIRECTORIES: [&str; 6] = [
    "/tmp",
    SECRETS_DIRECTORY,
    "/workspace",
    "/io",
    BINARY_DIRECTORY,
    CHANNEL_DIRECTORY,
];

/// Those of [`DIRECTORIES`] that are memory. The runtime gives such a mount the permissions of the directory that it
/// covers. Source: runc 1.1, `libcontainer/rootfs_linux.go`, `mountToRootfs`.
const OF_MEMORY: [&str; 2] = ["/tmp", SECRETS_DIRECTORY];

/// The right that the user of a capsule needs in a directory of another owner above a mount point.
const RIGHT_TO_ENTER: u32 = 0o1;

/// The rights that the user of a capsule needs in a directory of another owner.
const RIGHTS_OF_OTHERS: u32 = 0o7;

/// Maximum size of command and environment of an image, in bytes of JSON. The gate receives both in one message of 64
/// KiB, with the variables of the contract and of `agent.yaml`.
const SETTINGS_SIZE_BYTES_MAX: usize = 48 << 10;

/// Checks an image, in a container of the name `look`.
///
/// # Errors
/// [`RuntimeError::ImageRefused`] with all reasons.
pub(super) async fn check(
    engine: &Engine,
    look: &str,
    image: &str,
    facts: &ImageFacts,
) -> Result<(), RuntimeError> {
    let volumes = volumes::paths(facts)?;
    let failed = |error: CallError| error.during("checking an image");
    let look = Look::at(engine, look, image).await.map_err(failed)?;
    let looked = look_up(&look, &volumes).await;
    let of_user = users::check(&look, &facts.user).await;
    look.end().await.map_err(failed)?;
    let mut problems = problems(facts, &paths(&volumes), &looked?);
    problems.extend(of_user.map_err(failed)?);
    if problems.is_empty() {
        return Ok(());
    }
    Err(refused(&problems.join("; ")))
}

async fn look_up(
    look: &Look<'_>,
    volumes: &[String],
) -> Result<BTreeMap<String, Found>, RuntimeError> {
    let mut found = BTreeMap::new();
    for path in paths(volumes) {
        let stat = look.stat(&path).await;
        if let Some(there) = stat.map_err(|error| error.during("checking an image"))? {
            found.insert(path, there);
        }
    }
    for volume in volumes {
        // Refuses a volume with too many files.
        volumes::content(look, volume).await?;
    }
    Ok(found)
}

/// The paths to look up: all mount points, and the directories above them.
pub(super) fn paths(volumes: &[String]) -> Vec<String> {
    let targets = DIRECTORIES.into_iter();
    let targets = targets.chain(volumes.iter().map(String::as_str));
    let mut paths: Vec<String> = targets.flat_map(with_parents).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// `path` and the directories above it, except the root.
fn with_parents(path: &str) -> impl Iterator<Item = String> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
    ends.chain([path.len()]).map(|end| path[..end].to_owned())
}

/// All reasons why containers of the image cannot work. `targets` are the [`paths`], and `found` is what the image has
/// there.
pub(super) fn problems(
    image: &ImageFacts,
    targets: &[String],
    found: &BTreeMap<String, Found>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let settings = serde_json::to_vec(&(&image.command, &image.environment));
    let size = settings.expect("texts are JSON").len();
    if size > SETTINGS_SIZE_BYTES_MAX {
        problems.push(format!(
            "command and environment of the image have {size} bytes as JSON, expected at most {SETTINGS_SIZE_BYTES_MAX}; use \
             shorter values of ENV"
        ));
    }
    for (path, found) in found {
        match found {
            Found::Link => problems.push(format!(
                "the image has a link at {path}, where a capsule has a directory of AOD; remove the link, or the VOLUME \
                 that uses it"
            )),
            Found::Other => problems.push(format!(
                "the image has a file at {path}, where a capsule has a directory of AOD; remove the file, or the \
                 VOLUME that uses it"
            )),
            Found::Directory(mode) => problems.extend(mode_problem(path, *mode, targets)),
        }
    }
    problems
}

/// Why capsules cannot use a directory of the image with this mode.
fn mode_problem(path: &str, mode: u32, targets: &[String]) -> Option<String> {
    let below = format!("{path}/");
    let is_above = targets.iter().any(|target| target.starts_with(&below));
    let (effect, remedy) =
        if OF_MEMORY.contains(&path) && mode & RIGHTS_OF_OTHERS != RIGHTS_OF_OTHERS {
            ("write to it", "1777")
        } else if is_above && mode & RIGHT_TO_ENTER == 0 {
            ("reach a directory of AOD below it", "a+x")
        } else {
            return None;
        };
    Some(format!(
        "the directory {path} of the image has the mode {mode:04o}, so that capsules cannot {effect}; add RUN chmod \
         {remedy} {path}, or remove the directory"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_of_mount_points_are_looked_up() {
        let paths = paths(&["/srv/data/new".to_owned()]);
        for path in ["/run", "/run/secrets", "/.aod", "/srv", "/srv/data/new"] {
            assert!(paths.iter().any(|known| known == path), "{path}: {paths:?}");
        }
        assert!(!paths.contains(&String::new()) && !paths.contains(&"/".to_owned()));
    }

    #[test]
    fn image_with_unusable_mount_points_is_refused_with_all_reasons() {
        let found = [
            ("/tmp", Found::Directory(0o755)),
            ("/run", Found::Directory(0o755)),
            ("/run/secrets", Found::Link),
            ("/io", Found::Other),
            ("/.aod", Found::Directory(0o500)),
            ("/workspace", Found::Directory(0o700)),
        ];
        let found = found.map(|(path, found)| (path.to_owned(), found));
        let image = ImageFacts {
            environment: vec![("LONG".to_owned(), "x".repeat(50_000))],
            ..ImageFacts::default()
        };
        let problems = problems(&image, &paths(&[]), &found.into_iter().collect());
        let expected = [
            "environment",
            "0500",
            "file at /io",
            "link at /run/secrets",
            "0755",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn ordinary_image_has_no_problems() {
        let found = [
            ("/tmp", Found::Directory(0o777)),
            ("/run", Found::Directory(0o755)),
            ("/io", Found::Directory(0o700)),
        ];
        let found = found.map(|(path, found)| (path.to_owned(), found));
        let problems = problems(
            &ImageFacts::default(),
            &paths(&[]),
            &found.into_iter().collect(),
        );
        assert_eq!(problems, Vec::<String>::new());
    }
}
