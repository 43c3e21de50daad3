//! The protocol between gate and node: frames on one Unix stream socket.
//!
//! The gate connects to [`GATE_SOCKET`] in the channel directory before it starts anything; the node
//! accepts exactly one connection on this socket. A frame is one byte of kind, four bytes of length (big
//! endian, at most [`PAYLOAD_SIZE_BYTES_MAX`]) and the payload: JSON, or for outputs raw bytes.
//!
//! | kind | from | payload | when |
//! |---|---|---|---|
//! | `H` | gate | [`Hello`] | first, once |
//! | `S` | gate | [`Started`] | the command runs |
//! | `O`, `E` | gate | bytes | the command's stdout, stderr |
//! | `D` | gate | [`Deleted`] | after one or more `C`, while the command runs |
//! | `o`, `e` | gate | the process's number in four bytes, big endian, then bytes | stdout, stderr of a process of the node |
//! | `x` | gate | [`ProcessExited`] | a process of the node has ended, and its outputs are complete |
//! | `X` | gate | [`Exited`] | last, once: all other processes are dead and all outputs are complete |
//! | `G` | node | [`Go`] | once |
//! | `L` | node | [`Lease`] | any time after `G` |
//! | `T` | node | [`Signal`] | any time after `G` |
//! | `C` | node | `{}` | any time after `G` |
//! | `P` | node | [`Process`] | any time after a `G` that holds |
//! | `F` | node | `{}` | after a `G` that holds: end when no process runs |
//!
//! With `G` the node either starts the image's own command, or makes the gate hold: the gate then starts the processes
//! that the node sends, and nothing outlives them. When none of them runs, the gate kills and reaps all other processes
//! of the container before it reports the end of the last, and only then starts the next.
//!
//! An `X` without an `H` reports why the gate could not begin. After `X` the gate closes; a later frame
//! of the node may meet a broken pipe, which means nothing.
//!
//! This module is pure: bytes in, messages out. The callers have the sockets, so the node can use an
//! async runtime and the gate none. A reader is a loop over [`Decoder::push`] and
//! [`Decoder::next_message`].

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

mod decoder;
#[cfg(test)]
mod tests;

pub use decoder::{DecodeError, Decoder};

/// The version of this protocol, sent in [`Hello`]. A node rejects a container with another version:
/// both come from one build, so another version is another program.
pub const PROTOCOL_VERSION: u32 = 3;

/// Maximum payload of a frame of the gate, in bytes: one frame of output is one full pipe (Linux `pipe(7)`: 65,536
/// bytes).
pub const PAYLOAD_SIZE_BYTES_MAX: usize = 64 * 1024;

/// Maximum payload of a frame of the node, in bytes: arguments and environment of a process take at most 2 MiB (Linux
/// `execve(2)`), and JSON makes them longer.
pub const ORDER_SIZE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes in front of each payload: the kind and the length.
pub const HEADER_SIZE_BYTES: usize = 5;

/// The mount point of the directory with the gate's binary in a container, read-only.
pub const BINARY_DIRECTORY: &str = "/.aod/bin";

/// The container's entrypoint: the gate's binary in [`BINARY_DIRECTORY`].
pub const BINARY_PATH: &str = "/.aod/bin/aod-gate";

/// The mount point of the run's channel directory in a container, read-only.
pub const CHANNEL_DIRECTORY: &str = "/.aod/channel";

/// The socket in the channel directory on which the node awaits its gate.
pub const GATE_SOCKET: &str = "gate.sock";

/// The socket in the channel directory on which the node serves the run's private HTTP.
pub const CAPSULE_SOCKET: &str = "capsule.sock";

/// The gate's address for the capsule's connections in a container: IPv4 loopback, which needs no
/// network, and a number, because `/etc/hosts` may be empty.
pub const LISTEN_ADDRESS: &str = "127.0.0.1:8700";

/// Maximum number of connections to [`CAPSULE_SOCKET`]. The gate accepts one more and closes it immediately.
pub const CONNECTIONS_MAX: usize = 64;

/// Exit code of a gate that failed: no channel, a broken protocol, an expired lease. Source: `docker run`
/// uses 125 for its own failures, in contrast to the command's.
pub const EXIT_CODE_GATE_FAILED: u8 = 125;

/// Exit code for a command that exists but cannot run. Source: POSIX shell, 2.8.2.
pub const EXIT_CODE_NOT_EXECUTABLE: u8 = 126;

/// Exit code for a missing command. Source: POSIX shell, 2.8.2.
pub const EXIT_CODE_NOT_FOUND: u8 = 127;

/// A message from the gate to its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromGate {
    /// The gate is ready and waits for [`ToGate::Go`].
    Hello(Hello),
    /// The command runs.
    Started(Started),
    /// Bytes of the command's standard output, in their order.
    Stdout(Vec<u8>),
    /// Bytes of the command's standard error, in their order.
    Stderr(Vec<u8>),
    /// What deleted files of the container's processes take.
    Deleted(Deleted),
    /// Bytes of the standard output of a process of the node, in their order.
    ProcessStdout(u32, Vec<u8>),
    /// Bytes of the standard error of a process of the node, in their order.
    ProcessStderr(u32, Vec<u8>),
    /// A process of the node has ended, and its outputs have been sent.
    ProcessExited(ProcessExited),
    /// Nothing runs and all output has been sent; the last message.
    Exited(Exited),
}

/// A message from the node to its gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToGate {
    /// Start the command; once.
    Go(Go),
    /// The lease has been renewed.
    Lease(Lease),
    /// Pass a signal to the command.
    Signal(Signal),
    /// Report [`FromGate::Deleted`].
    CountDeleted,
    /// Start a process.
    Process(Process),
    /// Start no more processes, and end when none runs.
    Finish,
}

/// Reports that the gate is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the gate.
    pub version: u32,
    /// The gate's process id in its own namespace: 1 in a container.
    pub pid: i32,
    /// The gate's address for the capsule's connections: [`LISTEN_ADDRESS`] in a container.
    pub listen: SocketAddr,
}

/// Reports that the command runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The main process' id in the container's namespace.
    pub pid: i32,
}

/// What deleted files take that processes of the container still have open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// Bytes of their blocks on disks, at least.
    pub bytes: u64,
}

/// The end of the main process, or the reason why it did not start.
///
/// `code` and `error`: the command could not be started (126, 127). `error` alone: the gate itself
/// failed. Else exactly one of `code` and `signal`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// The exit code, 0 to 255.
    pub code: Option<i32>,
    /// The signal that ended the main process, 1 to 64.
    pub signal: Option<i32>,
    /// Why nothing was started, as text.
    pub error: Option<String>,
    /// The kernel has killed a process of the container because its memory ran out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// While the command ran, the gate received a signal from outside its container: the engine or a
    /// user of the host requested the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked_from_outside: bool,
}

impl Exited {
    /// The exit code of the gate itself: the command's, 128 plus the signal's number, or
    /// [`EXIT_CODE_GATE_FAILED`].
    pub fn exit_code(&self) -> u8 {
        let code = self
            .code
            .or(self.signal.map(|signal| signal.saturating_add(128)));
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(EXIT_CODE_GATE_FAILED)
    }
}

/// Starts the command with the working directory and user of the gate, which Docker has set, or makes the gate hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Go {
    /// Whether the gate holds instead of starting `argv`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds: bool,
    /// The command and its arguments: the image's entrypoint followed by its cmd. The gate searches a
    /// command without a slash in the `PATH` of `env`.
    pub argv: Vec<String>,
    /// The complete environment of the command, or of each process. Of equal names, the last counts.
    pub env: Vec<(String, String)>,
    /// Time that the command may run without a [`Lease`], in milliseconds from now.
    pub lease_milliseconds: u64,
    /// Files that the gate writes before it starts the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretFile>,
}

/// A file with a secret, readable only for the command's user. The file must not exist yet; its directory
/// is memory.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretFile {
    /// Absolute path.
    pub path: String,
    /// Content.
    pub value: String,
}

impl fmt::Debug for SecretFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SecretFile({}: ***)", self.path)
    }
}

/// Renews the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The new deadline, in milliseconds from the moment the gate reads this (`CLOCK_BOOTTIME`).
    pub milliseconds: u64,
}

/// Passes a signal to the main process and its process group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// The signal's number, 1 to 31; the gate ignores other numbers.
    pub signal: i32,
    /// The process of the node that receives it. Without a number, a gate that holds passes it to all its processes, and
    /// then finishes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
}

/// A process that a gate which holds starts, leader of its own process group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The node's number for it, different from those of all processes that run.
    pub number: u32,
    /// The program and its arguments, as in [`Go`].
    pub argv: Vec<String>,
    /// Added to the environment of [`Go`].
    pub env: Vec<(String, String)>,
    /// The file that the process reads as its standard input, an absolute path in the container; none for an empty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
}

/// The end of a process of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessExited {
    /// The node's number for it.
    pub number: u32,
    /// As for the image's own command. `out_of_memory`: memory ran out while the process ran. `asked_from_outside`: the
    /// gate has received a signal from outside its container.
    #[serde(flatten)]
    pub exited: Exited,
}

/// The payload of a message that says all by its kind.
#[derive(Serialize, Deserialize)]
struct Nothing {}

/// Why a message cannot be sent; nothing of it has been written.
#[derive(Debug, Error)]
pub enum EncodeError {
    /// The content is too large: shorten the command or its environment, or send output in parts.
    #[error("a payload of {size_bytes} bytes exceeds the maximum of {size_bytes_max}")]
    TooLarge {
        /// Size of the payload.
        size_bytes: usize,
        /// The maximum of its direction.
        size_bytes_max: usize,
    },
    /// The message cannot be written as JSON; a bug.
    #[error("a message cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// A message in a frame; only [`FromGate`] and [`ToGate`] implement it.
pub trait Message: Sized + sealed::Sealed {
    /// Maximum payload of these messages, in bytes.
    const SIZE_BYTES_MAX: usize;

    /// Whether this kind belongs to these messages.
    fn is_kind(kind: u8) -> bool;

    /// Parses the complete payload of a message of `kind`, for which [`Message::is_kind`] holds.
    ///
    /// # Errors
    /// The error of the JSON.
    fn parse(kind: u8, payload: &[u8]) -> Result<Self, serde_json::Error>;

    /// Appends the message's frame to `frames`; an error leaves `frames` unchanged.
    fn encode(&self, frames: &mut Vec<u8>) -> Result<(), EncodeError>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::FromGate {}
    impl Sealed for super::ToGate {}
}

pub(crate) mod kind {
    //! The first bytes of frames.

    pub(crate) const HELLO: u8 = b'H';
    pub(crate) const STARTED: u8 = b'S';
    pub(crate) const STDOUT: u8 = b'O';
    pub(crate) const STDERR: u8 = b'E';
    pub(crate) const DELETED: u8 = b'D';
    pub(crate) const PROCESS_STDOUT: u8 = b'o';
    pub(crate) const PROCESS_STDERR: u8 = b'e';
    pub(crate) const PROCESS_EXITED: u8 = b'x';
    pub(crate) const EXITED: u8 = b'X';
    pub(crate) const GO: u8 = b'G';
    pub(crate) const LEASE: u8 = b'L';
    pub(crate) const SIGNAL: u8 = b'T';
    pub(crate) const COUNT_DELETED: u8 = b'C';
    pub(crate) const PROCESS: u8 = b'P';
    pub(crate) const FINISH: u8 = b'F';
}

impl Message for FromGate {
    const SIZE_BYTES_MAX: usize = PAYLOAD_SIZE_BYTES_MAX;

    fn is_kind(kind: u8) -> bool {
        matches!(
            kind,
            kind::HELLO
                | kind::STARTED
                | kind::STDOUT
                | kind::STDERR
                | kind::DELETED
                | kind::PROCESS_STDOUT
                | kind::PROCESS_STDERR
                | kind::PROCESS_EXITED
                | kind::EXITED
        )
    }

    fn parse(kind: u8, payload: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(match kind {
            kind::HELLO => Self::Hello(serde_json::from_slice(payload)?),
            kind::STARTED => Self::Started(serde_json::from_slice(payload)?),
            kind::STDOUT => Self::Stdout(payload.to_vec()),
            kind::STDERR => Self::Stderr(payload.to_vec()),
            kind::DELETED => Self::Deleted(serde_json::from_slice(payload)?),
            kind::PROCESS_STDOUT | kind::PROCESS_STDERR => {
                let (number, bytes) = split_number(payload)?;
                let make = [Self::ProcessStdout, Self::ProcessStderr];
                make[usize::from(kind == kind::PROCESS_STDERR)](number, bytes)
            }
            kind::PROCESS_EXITED => Self::ProcessExited(serde_json::from_slice(payload)?),
            _ => Self::Exited(serde_json::from_slice(payload)?),
        })
    }

    fn encode(&self, frames: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Hello(hello) => encode_json::<Self>(kind::HELLO, hello, frames),
            Self::Started(started) => encode_json::<Self>(kind::STARTED, started, frames),
            Self::Stdout(bytes) => encode_bytes::<Self>(kind::STDOUT, &[bytes], frames),
            Self::Stderr(bytes) => encode_bytes::<Self>(kind::STDERR, &[bytes], frames),
            Self::Deleted(deleted) => encode_json::<Self>(kind::DELETED, deleted, frames),
            Self::ProcessStdout(number, bytes) => {
                let parts: [&[u8]; 2] = [&number.to_be_bytes(), bytes];
                encode_bytes::<Self>(kind::PROCESS_STDOUT, &parts, frames)
            }
            Self::ProcessStderr(number, bytes) => {
                let parts: [&[u8]; 2] = [&number.to_be_bytes(), bytes];
                encode_bytes::<Self>(kind::PROCESS_STDERR, &parts, frames)
            }
            Self::ProcessExited(exited) => {
                encode_json::<Self>(kind::PROCESS_EXITED, exited, frames)
            }
            Self::Exited(exited) => encode_json::<Self>(kind::EXITED, exited, frames),
        }
    }
}

impl Message for ToGate {
    const SIZE_BYTES_MAX: usize = ORDER_SIZE_BYTES_MAX;

    fn is_kind(kind: u8) -> bool {
        matches!(
            kind,
            kind::GO
                | kind::LEASE
                | kind::SIGNAL
                | kind::COUNT_DELETED
                | kind::PROCESS
                | kind::FINISH
        )
    }

    fn parse(kind: u8, payload: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(match kind {
            kind::GO => Self::Go(serde_json::from_slice(payload)?),
            kind::LEASE => Self::Lease(serde_json::from_slice(payload)?),
            kind::COUNT_DELETED => {
                let _: Nothing = serde_json::from_slice(payload)?;
                Self::CountDeleted
            }
            kind::FINISH => {
                let _: Nothing = serde_json::from_slice(payload)?;
                Self::Finish
            }
            kind::PROCESS => Self::Process(serde_json::from_slice(payload)?),
            _ => Self::Signal(serde_json::from_slice(payload)?),
        })
    }

    fn encode(&self, frames: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Go(go) => encode_json::<Self>(kind::GO, go, frames),
            Self::Lease(lease) => encode_json::<Self>(kind::LEASE, lease, frames),
            Self::Signal(signal) => encode_json::<Self>(kind::SIGNAL, signal, frames),
            Self::CountDeleted => encode_json::<Self>(kind::COUNT_DELETED, &Nothing {}, frames),
            Self::Process(process) => encode_json::<Self>(kind::PROCESS, process, frames),
            Self::Finish => encode_json::<Self>(kind::FINISH, &Nothing {}, frames),
        }
    }
}

/// Splits a payload into the number of a process and its output.
fn split_number(payload: &[u8]) -> Result<(u32, Vec<u8>), serde_json::Error> {
    let short = || serde::de::Error::custom("a payload without the number of a process");
    let (number, bytes) = payload.split_first_chunk::<4>().ok_or_else(short)?;
    Ok((u32::from_be_bytes(*number), bytes.to_vec()))
}

/// Appends a frame of raw bytes in `parts`, together at most the maximum of `M`.
pub(crate) fn encode_bytes<M: Message>(
    kind: u8,
    parts: &[&[u8]],
    frames: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let size_bytes = parts.iter().map(|part| part.len()).sum();
    let too_large = EncodeError::TooLarge {
        size_bytes,
        size_bytes_max: M::SIZE_BYTES_MAX,
    };
    if size_bytes > M::SIZE_BYTES_MAX {
        return Err(too_large);
    }
    let length = u32::try_from(size_bytes).map_err(|_| too_large)?;
    frames.reserve(HEADER_SIZE_BYTES + size_bytes);
    frames.push(kind);
    frames.extend_from_slice(&length.to_be_bytes());
    for part in parts {
        frames.extend_from_slice(part);
    }
    Ok(())
}

fn encode_json<M: Message>(
    kind: u8,
    content: &impl Serialize,
    frames: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    encode_bytes::<M>(kind, &[&serde_json::to_vec(content)?], frames)
}
