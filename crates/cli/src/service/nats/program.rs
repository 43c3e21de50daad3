//! Finds a nats-server of a supported version.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use aod_jetstream::{SERVER_VERSION_MIN, ServerVersion};
use tokio::process::Command;
use tokio::time::timeout;

/// The environment variable with the path of the program; it has priority.
const VARIABLE: &str = "AOD_NATS_SERVER";

/// Maximum time of `nats-server --version`.
const VERSION_PATIENCE: Duration = Duration::from_secs(10);

/// The result of the search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The first supported program, and its version.
    pub(crate) program: Option<(PathBuf, String)>,
    /// A line for each rejected program.
    pub(crate) skipped: Vec<String>,
}

/// Searches `AOD_NATS_SERVER`, `PATH`, then the directory of the tools that `make` installs.
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
            Err(why) => finding.skipped.push(format!("skipped {shown}: {why}")),
            Ok(text) if ServerVersion::parse(&text).is_some_and(ServerVersion::is_supported) => {
                finding.program = Some((path, text));
                break;
            }
            Ok(text) => {
                let line = format!(
                    "skipped {shown}: version {text} is too old; expected {SERVER_VERSION_MIN} or newer"
                );
                finding.skipped.push(line);
            }
        }
    }
    finding
}

/// The version that `nats-server --version` prints: `nats-server: v2.15.1`.
async fn version_of(program: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(VERSION_PATIENCE, command.output()).await;
    let output = output.map_err(|_| "`--version` does not end".to_owned())?;
    let output = output.map_err(|error| format!("cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text
        .trim()
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .trim_start_matches('v');
    if ServerVersion::parse(version).is_none() {
        return Err(format!("expected a version, got {:.60?}", text.trim()));
    }
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn unsupported_nats_server_is_skipped_with_a_reason() {
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
            finding.skipped[0].ends_with("old: version 2.9.10 is too old; expected 2.15 or newer")
        );
        assert!(finding.skipped[1].ends_with("odd: expected a version, got \"hello\""));
    }
}
