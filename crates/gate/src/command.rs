//! Starting the image's own command.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::Pid;
use thiserror::Error;

use crate::outputs::Outputs;
use crate::protocol::{EXIT_CODE_NOT_EXECUTABLE, EXIT_CODE_NOT_FOUND, Go};

#[cfg(test)]
mod tests;

/// Where commands are looked up if the environment names no `PATH`. Source: Docker sets this one for
/// images that have none (moby `oci/defaults.go`, `DefaultPathEnv`).
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Started {
    /// The main process, which leads a process group of its own.
    pub(crate) main: Pid,
    /// Its outputs, ready for reading without blocking.
    pub(crate) outputs: Outputs,
}

/// Why a command does not run.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    /// The image names no command.
    #[error("there is no command: the image has neither an entrypoint nor a cmd")]
    NoCommand,
    /// No such file.
    #[error("{}: no such file", path.display())]
    NoFile { path: PathBuf },
    /// The name is in none of the directories.
    #[error("{name}: not found in PATH={search}")]
    NotInPath { name: String, search: String },
    /// The file is there, but not for running.
    #[error("{}: is a directory or may not be executed", path.display())]
    NotExecutable { path: PathBuf },
    /// The file is there, but what it needs to run is not.
    #[error("{}: its interpreter or loader does not exist", path.display())]
    NoInterpreter { path: PathBuf },
    /// The system refuses.
    #[error("{}: cannot be started: {source}", path.display())]
    Refused { path: PathBuf, source: io::Error },
}

impl StartError {
    /// The exit code that says so.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::NoCommand
            | Self::NoFile { .. }
            | Self::NotInPath { .. }
            | Self::NoInterpreter { .. } => EXIT_CODE_NOT_FOUND,
            Self::NotExecutable { .. } | Self::Refused { .. } => EXIT_CODE_NOT_EXECUTABLE,
        }
    }
}

/// Starts the command with exactly the given environment, `/dev/null` as its input and pipes as its
/// outputs.
pub(crate) fn start(go: &Go) -> Result<Started, StartError> {
    let (name, arguments) = go.argv.split_first().ok_or(StartError::NoCommand)?;
    let path = find(name, search_path(&go.env))?;
    let refused = |source| StartError::Refused {
        path: path.clone(),
        source,
    };
    let mut child = Command::new(&path)
        .arg0(name)
        .args(arguments)
        .env_clear()
        .envs(go.env.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StartError::NoInterpreter { path: path.clone() },
            io::ErrorKind::PermissionDenied => StartError::NotExecutable { path: path.clone() },
            _ => refused(source),
        })?;
    let main = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let outputs = Outputs {
        stdout: child.stdout.take().map(OwnedFd::from),
        stderr: child.stderr.take().map(OwnedFd::from),
    };
    for output in [&outputs.stdout, &outputs.stderr].into_iter().flatten() {
        // Only this end: the command's own stays blocking.
        ioctl_fionbio(output, true).map_err(|errno| refused(errno.into()))?;
    }
    // From here on the child is known by its id alone: it is reaped with all the others.
    Ok(Started {
        main: main.expect("a process id is a positive 32-bit number"),
        outputs,
    })
}

/// The value of `PATH` that the command will see: of equal names the last counts.
fn search_path(env: &[(String, String)]) -> &str {
    let path = env.iter().rev().find(|(key, _)| key == "PATH");
    path.map_or(PATH_DEFAULT, |(_, value)| value)
}

/// Finds the file of a command. A name without a slash is looked up in the directories of `search`,
/// of which an empty one is the working directory; a relative path starts there too.
fn find(name: &str, search: &str) -> Result<PathBuf, StartError> {
    if name.is_empty() {
        return Err(StartError::NoCommand);
    }
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match look_at(&path) {
            Found::Executable => Ok(path),
            Found::Other => Err(StartError::NotExecutable { path }),
            Found::Nothing => Err(StartError::NoFile { path }),
        };
    }
    let mut not_executable = None;
    for directory in search.split(':') {
        let directory = if directory.is_empty() { "." } else { directory };
        let path = Path::new(directory).join(OsStr::new(name));
        match look_at(&path) {
            Found::Executable => return Ok(path),
            Found::Other => not_executable = not_executable.or(Some(path)),
            Found::Nothing => (),
        }
    }
    Err(match not_executable {
        Some(path) => StartError::NotExecutable { path },
        None => StartError::NotInPath {
            name: name.into(),
            search: search.into(),
        },
    })
}

enum Found {
    Executable,
    Other,
    Nothing,
}

fn look_at(path: &Path) -> Found {
    match access(path, Access::EXEC_OK) {
        Ok(()) if path.is_file() => Found::Executable,
        Ok(()) | Err(Errno::ACCESS | Errno::PERM) => Found::Other,
        Err(_) => Found::Nothing,
    }
}
