//! The node's end of the connection with a gate: one socket, the greeting, then frames in both
//! directions.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aod_domain::run::Exit;
use aod_gate::protocol::{
    DecodeError, Decoder, Deleted, EncodeError, Exited, FromGate, GATE_SOCKET, Lease, Message as _,
    PROTOCOL_VERSION, ProcessExited, Signal, ToGate,
};
use aod_ports::container_runtime::{ContainerEvent, ProcessEvent};
use aod_ports::log_stream::Output;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, mpsc, watch};
use tracing::{debug, warn};

/// Bytes of one read from a gate: one frame of output.
const READ_SIZE_BYTES: usize = 64 * 1024;

/// Events that wait for the node, each with at most one frame: 1 MiB. Above this number the gate and
/// its capsule wait.
const EVENTS_MAX: usize = 16;

/// Maximum time for a gate to accept a frame of a few bytes: no other work of a gate takes long.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// A failure of the connection with a gate.
#[derive(Debug, Error)]
pub(crate) enum GateError {
    #[error("the connection with the gate failed")]
    Io(#[from] io::Error),
    #[error("the gate sent an invalid frame")]
    Decode(#[from] DecodeError),
    #[error("the message to the gate is too large")]
    Encode(#[from] EncodeError),
    #[error("the gate uses protocol version {version}, expected {PROTOCOL_VERSION}")]
    Version { version: u32 },
    #[error("the gate failed: {0}")]
    Unable(String),
    #[error("the first message of the gate is not its greeting")]
    NoHello,
    #[error("the gate closed the connection")]
    Closed,
    #[error("the gate did not accept or answer a frame in time")]
    Stuck,
}

/// The socket that awaits the gate of one container; deleted when dropped.
#[derive(Debug)]
pub(crate) struct GateListener {
    path: PathBuf,
    listener: UnixListener,
}

impl GateListener {
    /// Listens in the run's channel directory, and replaces the socket of an earlier attempt.
    ///
    /// Any process that reaches the socket may connect: inside the container its user, outside only the node,
    /// which owns the directory.
    pub(crate) fn bind(channel: &Path) -> io::Result<Self> {
        let path = channel.join(GATE_SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        Ok(Self { path, listener })
    }

    /// Accepts only the first connection, reads the greeting, and returns the user of the gate.
    pub(crate) async fn accept(self) -> Result<(Greeted, u32), GateError> {
        let (stream, _) = self.listener.accept().await?;
        drop(self);
        let uid = stream.peer_cred()?.uid();
        let mut greeted = Greeted {
            stream,
            decoder: Decoder::new(),
        };
        match greeted.first_message().await? {
            FromGate::Hello(hello) if hello.version == PROTOCOL_VERSION => Ok((greeted, uid)),
            FromGate::Hello(hello) => Err(GateError::Version {
                version: hello.version,
            }),
            FromGate::Exited(exited) => Err(GateError::Unable(exited.error.unwrap_or_default())),
            _ => Err(GateError::NoHello),
        }
    }
}

impl Drop for GateListener {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            debug!(path = %self.path.display(), %error, "the gate's socket could not be removed");
        }
    }
}

/// A gate that waits for its command.
#[derive(Debug)]
pub(crate) struct Greeted {
    stream: UnixStream,
    decoder: Decoder<FromGate>,
}

impl Greeted {
    async fn first_message(&mut self) -> Result<FromGate, GateError> {
        let mut scratch = vec![0; READ_SIZE_BYTES];
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Ok(message);
            }
            match self.stream.read(&mut scratch).await? {
                0 => return Err(GateError::Closed),
                size_bytes => self.decoder.push(&scratch[..size_bytes]),
            }
        }
    }

    /// Sends `go` and starts to read the gate's messages.
    pub(crate) async fn begin(
        self,
        go: ToGate,
    ) -> Result<(GateWriter, mpsc::Receiver<ContainerEvent>), GateError> {
        let (reader, writer) = self.stream.into_split();
        let (counted, deleted) = watch::channel(None);
        let writer = GateWriter {
            half: Mutex::new(Some(writer)),
            deleted,
        };
        writer.send(&go).await?;
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(follow(reader, self.decoder, events, counted));
        Ok((writer, receiver))
    }
}

/// Writes to a gate.
#[derive(Debug)]
pub(crate) struct GateWriter {
    /// None after an incomplete frame: the gate could not parse later frames.
    half: Mutex<Option<OwnedWriteHalf>>,
    /// The last count of deleted files.
    deleted: watch::Receiver<Option<Deleted>>,
}

impl GateWriter {
    pub(crate) async fn renew(&self, milliseconds: u64) -> Result<(), GateError> {
        self.send(&ToGate::Lease(Lease { milliseconds })).await
    }

    /// Sends a signal to the process with this number, or to all.
    pub(crate) async fn signal(&self, signal: i32, process: Option<u32>) -> Result<(), GateError> {
        self.send(&ToGate::Signal(Signal { signal, process })).await
    }

    /// What deleted files take that are still open.
    pub(crate) async fn count_deleted(&self) -> Result<Deleted, GateError> {
        let mut deleted = self.deleted.clone();
        deleted.mark_unchanged();
        self.send_now(&ToGate::CountDeleted)?;
        match tokio::time::timeout(WRITE_TIMEOUT, deleted.changed()).await {
            Err(_) => Err(GateError::Stuck),
            Ok(Err(_)) => Err(GateError::Closed),
            Ok(Ok(())) => deleted.borrow().ok_or(GateError::Closed),
        }
    }

    /// Sends a message that may be lost. It waits for nothing: while it waited, the caller could not renew the lease.
    fn send_now(&self, message: &ToGate) -> Result<(), GateError> {
        let mut frame = Vec::new();
        message.encode(&mut frame)?;
        let mut guard = self.half.try_lock().map_err(|_| GateError::Stuck)?;
        let half = guard.as_ref().ok_or(GateError::Closed)?;
        match half.try_write(&frame) {
            Ok(written) if written == frame.len() => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(GateError::Stuck),
            incomplete => {
                *guard = None;
                incomplete?;
                Err(GateError::Stuck)
            }
        }
    }

    pub(crate) async fn send(&self, message: &ToGate) -> Result<(), GateError> {
        let mut frame = Vec::new();
        message.encode(&mut frame)?;
        let mut guard = self.half.lock().await;
        // Taken out during the write: after a dropped call, no later frame follows an incomplete one.
        let mut half = guard.take().ok_or(GateError::Closed)?;
        match tokio::time::timeout(WRITE_TIMEOUT, half.write_all(&frame)).await {
            Err(_) => Err(GateError::Stuck),
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(())) => {
                *guard = Some(half);
                Ok(())
            }
        }
    }
}

/// Turns frames into events until the last one. Continues to read after the receiver is dropped,
/// because a gate whose output is not read cannot end.
async fn follow(
    mut reader: OwnedReadHalf,
    mut decoder: Decoder<FromGate>,
    events: mpsc::Sender<ContainerEvent>,
    counted: watch::Sender<Option<Deleted>>,
) {
    let mut scratch = vec![0; READ_SIZE_BYTES];
    let last = loop {
        match decoder.next_message() {
            Ok(Some(FromGate::Deleted(deleted))) => {
                counted.send_replace(Some(deleted));
                continue;
            }
            Ok(Some(message)) => {
                let event = event(message);
                if !matches!(
                    event,
                    ContainerEvent::Started
                        | ContainerEvent::Wrote { .. }
                        | ContainerEvent::Process(..)
                ) {
                    break event;
                }
                let _ = events.send(event).await;
                continue;
            }
            Ok(None) => (),
            Err(error) => {
                debug!(%error, "a gate sent an invalid frame");
                break ContainerEvent::Lost;
            }
        }
        match reader.read(&mut scratch).await {
            Ok(size_bytes) if size_bytes > 0 => decoder.push(&scratch[..size_bytes]),
            _ => break ContainerEvent::Lost,
        }
    };
    let _ = events.send(last).await;
}

fn event(message: FromGate) -> ContainerEvent {
    let wrote = |output, bytes: Vec<u8>| ContainerEvent::Wrote {
        output,
        bytes: bytes.into(),
    };
    match message {
        FromGate::Started(_) => ContainerEvent::Started,
        FromGate::Stdout(bytes) => wrote(Output::Stdout, bytes),
        FromGate::Stderr(bytes) => wrote(Output::Stderr, bytes),
        FromGate::ProcessStdout(number, bytes) => {
            ContainerEvent::Process(number, process_wrote(Output::Stdout, bytes))
        }
        FromGate::ProcessStderr(number, bytes) => {
            ContainerEvent::Process(number, process_wrote(Output::Stderr, bytes))
        }
        FromGate::ProcessExited(ProcessExited { number, exited }) => {
            ContainerEvent::Process(number, process_end(exited))
        }
        FromGate::Exited(Exited {
            code: Some(_),
            error: Some(error),
            ..
        }) => ContainerEvent::Unusable(error),
        FromGate::Exited(Exited {
            error: Some(error), ..
        }) => {
            warn!(error, "a gate failed");
            ContainerEvent::Lost
        }
        FromGate::Exited(Exited {
            code,
            signal,
            out_of_memory,
            asked_from_outside,
            ..
        }) => ContainerEvent::Exited {
            exit: Exit { code, signal },
            out_of_memory,
            asked_from_outside,
        },
        // The first message only: a second greeting is not from our gate. Counts are no events.
        FromGate::Hello(_) | FromGate::Deleted(_) => ContainerEvent::Lost,
    }
}

fn process_wrote(output: Output, bytes: Vec<u8>) -> ProcessEvent {
    let bytes = bytes.into();
    ProcessEvent::Wrote { output, bytes }
}

fn process_end(exited: Exited) -> ProcessEvent {
    let Exited {
        code,
        signal,
        out_of_memory,
        asked_from_outside,
        error,
    } = exited;
    match error {
        Some(error) => ProcessEvent::Unusable(error),
        None => ProcessEvent::Exited {
            exit: Exit { code, signal },
            out_of_memory,
            asked_from_outside,
        },
    }
}
