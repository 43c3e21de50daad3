//! Finds a nats-server that is new enough.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use aod_jetstream::{SERVER_VERSION_MIN, ServerVersion};
use tokio::process::Command;
use tokio::time::timeout;

/// Names the program, before all other places.
const VARIABLE: &str = "AOD_NATS_SERVER";

/// Time to tell its version.
const VERSION_PATIENCE: Duration = Duration::from_secs(10);

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The first one that will do, and its version.
    pub(crate) program: Option<(PathBuf, String)>,
    /// A line for each that will not.
    pub(crate) skipped: Vec<String>,
}

/// Looks where `AOD_NATS_SERVER` says, on `PATH`, then where `make` puts its tools.
pub(crate) async fn find() -> Finding {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = std::env::home_dir().map(|home| home.join(".cache/aod/tools/bin"));
    let directories = std::env::split_paths(&path).chain(tools);
    let found = directories
        .map(|directory| directory.join("nats-server"))
        .filter(|path| path.is_file());
    first_of(named.into_iter().chain(found)).await
}

async fn first_of(candidates: impl Iterator<Item = PathBuf>) -> Finding {
    let mut finding = Finding::default();
    for path in candidates {
        let shown = path.display();
        match version_of(&path).await {
            Err(why) => finding.skipped.push(format!("{shown} is skipped: {why}")),
            Ok(text) if ServerVersion::parse(&text).is_some_and(ServerVersion::is_supported) => {
                finding.program = Some((path, text));
                break;
            }
            Ok(text) => {
                let line = format!(
                    "{shown} is skipped: version {text} is too old, {SERVER_VERSION_MIN} or newer is needed"
                );
                finding.skipped.push(line);
            }
        }
    }
    finding
}

/// What `nats-server --version` says: `nats-server: v2.15.1`.
async fn version_of(program: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(VERSION_PATIENCE, command.output()).await;
    let output = output.map_err(|_| "it does not tell its version".to_owned())?;
    let output = output.map_err(|error| format!("it cannot be started ({error})"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text
        .trim()
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .trim_start_matches('v');
    if ServerVersion::parse(version).is_none() {
        return Err(format!("{:.60?} is no version", text.trim()));
    }
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn an_old_one_is_skipped_with_a_line_that_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let program = |name: &str, script: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let old = program("old", "echo 'nats-server: v2.9.10'");
        let odd = program("odd", "echo hello");
        let new = program("new", "echo 'nats-server: v2.15.1'");
        let finding =
            first_of([old, odd, directory.path().join("none"), new.clone()].into_iter()).await;
        assert_eq!(finding.program, Some((new, "2.15.1".to_owned())));
        assert_eq!(finding.skipped.len(), 3);
        assert!(
            finding.skipped[0]
                .ends_with("old is skipped: version 2.9.10 is too old, 2.15 or newer is needed")
        );
        assert!(finding.skipped[1].ends_with("odd is skipped: \"hello\" is no version"));
    }
}
