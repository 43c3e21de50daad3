//! Starts the image's own command, or a process of the node.

use std::ffi::OsStr;
use std::fs::File;
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
use crate::protocol::{EXIT_CODE_NOT_EXECUTABLE, EXIT_CODE_NOT_FOUND};

#[cfg(test)]
mod tests;

/// The `PATH` of an environment without one. Source: Docker's default for images without a `PATH` (moby
/// `oci/defaults.go`, `DefaultPathEnv`).
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A running command.
#[derive(Debug)]
pub(crate) struct Started {
    /// The main process, leader of its own process group.
    pub(crate) main: Pid,
    /// The outputs of the command, set to non-blocking reads.
    pub(crate) outputs: Outputs,
}

/// Why a command cannot start.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    /// The image names no command.
    #[error("the image has no command; set ENTRYPOINT or CMD in the Dockerfile")]
    NoCommand,
    /// No such file.
    #[error("{}: no such file", path.display())]
    NoFile { path: PathBuf },
    /// No directory of `PATH` contains the name.
    #[error("{name}: not found in PATH={search}")]
    NotInPath { name: String, search: String },
    /// The file exists, but is not executable.
    #[error("{}: is a directory or not executable", path.display())]
    NotExecutable { path: PathBuf },
    /// The file exists, but its interpreter or loader does not.
    #[error("{}: its interpreter or loader does not exist", path.display())]
    NoInterpreter { path: PathBuf },
    /// The file for the standard input is not there.
    #[error("{path}: cannot be read as standard input: {source}")]
    NoInput { path: String, source: io::Error },
    /// The system rejects the start.
    #[error("{}: cannot be started: {source}", path.display())]
    Refused { path: PathBuf, source: io::Error },
}

/// Longest text of an error, in bytes: the names in it can be as long as an order.
const TEXT_BYTES_MAX: usize = 4 * 1024;

impl StartError {
    /// The error in at most [`TEXT_BYTES_MAX`].
    pub(crate) fn text(&self) -> String {
        let mut text = self.to_string();
        let is_end = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(is_end);
        text.truncate(end.unwrap_or(0));
        text
    }

    /// The exit code for this error.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::NoCommand
            | Self::NoFile { .. }
            | Self::NotInPath { .. }
            | Self::NoInterpreter { .. } => EXIT_CODE_NOT_FOUND,
            Self::NotExecutable { .. } | Self::NoInput { .. } | Self::Refused { .. } => {
                EXIT_CODE_NOT_EXECUTABLE
            }
        }
    }
}

/// Starts a command with exactly the given environment, the file `stdin` or `/dev/null` as input, and pipes as outputs.
pub(crate) fn start(
    argv: &[String],
    env: &[(String, String)],
    stdin: Option<&str>,
) -> Result<Started, StartError> {
    let (name, arguments) = argv.split_first().ok_or(StartError::NoCommand)?;
    let path = find(name, search_path(env))?;
    let input = input(stdin)?;
    let refused = |source| StartError::Refused {
        path: path.clone(),
        source,
    };
    let mut child = Command::new(&path)
        .arg0(name)
        .args(arguments)
        .env_clear()
        .envs(env.iter().map(|(key, value)| (key, value)))
        .stdin(input)
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
        // Only the gate's end: the command's end stays blocking.
        ioctl_fionbio(output, true).map_err(|errno| refused(errno.into()))?;
    }
    // From here on only the id identifies the child, which is reaped like all children.
    Ok(Started {
        main: main.expect("a process id is a positive 32-bit number"),
        outputs,
    })
}

fn input(path: Option<&str>) -> Result<Stdio, StartError> {
    let Some(path) = path else {
        return Ok(Stdio::null());
    };
    match File::open(path) {
        Ok(file) => Ok(file.into()),
        Err(source) => Err(StartError::NoInput {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The `PATH` of the command: of equal names, the last counts.
fn search_path(env: &[(String, String)]) -> &str {
    let path = env.iter().rev().find(|(key, _)| key == "PATH");
    path.map_or(PATH_DEFAULT, |(_, value)| value)
}

/// Finds the file of a command. A name without a slash is searched in the directories of `search`; an empty
/// directory means the working directory, to which paths are relative.
fn find(name: &str, search: &str) -> Result<PathBuf, StartError> {
    if name.is_empty() {
        return Err(StartError::NoCommand);
    }
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match inspect(&path) {
            Found::Executable => Ok(path),
            Found::Other => Err(StartError::NotExecutable { path }),
            Found::Nothing => Err(StartError::NoFile { path }),
        };
    }
    let mut not_executable = None;
    for directory in search.split(':') {
        let directory = if directory.is_empty() { "." } else { directory };
        let path = Path::new(directory).join(OsStr::new(name));
        match inspect(&path) {
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

fn inspect(path: &Path) -> Found {
    match access(path, Access::EXEC_OK) {
        Ok(()) if path.is_file() => Found::Executable,
        Ok(()) | Err(Errno::ACCESS | Errno::PERM) => Found::Other,
        Err(_) => Found::Nothing,
    }
}
