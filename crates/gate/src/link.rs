//! The connection to the node: sends frames, bounded and without blocking; receives messages.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::io::{Errno, read, write};

use crate::complain;
use crate::protocol::{Decoder, FromGate, Message, PAYLOAD_SIZE_BYTES_MAX, ToGate, encode_bytes};

/// Bytes that may wait for the node before the gate stops reading the command's output: enough to fill
/// the socket when the node reads again. One more read and the last reports are added to this.
const OUTBOX_SIZE_BYTES_MAX: usize = PAYLOAD_SIZE_BYTES_MAX;

/// The connection, possibly broken.
#[derive(Debug)]
pub(crate) struct Link {
    /// None when the connection is broken; the link then drops outgoing frames.
    stream: Option<UnixStream>,
    decoder: Decoder<ToGate>,
    outbox: Vec<u8>,
    /// Bytes of `outbox` that are sent.
    sent_bytes: usize,
}

impl Link {
    /// Connects to the node; the node listens before it starts the container.
    pub(crate) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: Some(stream),
            decoder: Decoder::new(),
            outbox: Vec::new(),
            sent_bytes: 0,
        })
    }

    /// The connection, unless broken.
    pub(crate) fn stream(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    /// Whether the connection is broken.
    pub(crate) fn is_broken(&self) -> bool {
        self.stream.is_none()
    }

    /// Whether bytes wait to be sent.
    pub(crate) fn is_pending(&self) -> bool {
        self.stream.is_some() && self.sent_bytes < self.outbox.len()
    }

    /// Whether the gate may read more output from the command.
    pub(crate) fn has_room(&self) -> bool {
        self.stream.is_none() || self.outbox.len() - self.sent_bytes < OUTBOX_SIZE_BYTES_MAX
    }

    /// Sends one of the gate's own reports; all of them are far below the maximum size of a frame.
    pub(crate) fn send(&mut self, report: &FromGate) {
        self.compact();
        report
            .encode(&mut self.outbox)
            .expect("the creators of reports bound them");
        self.flush();
    }

    /// Sends a piece of output in `parts`, together at most [`PAYLOAD_SIZE_BYTES_MAX`], as a frame of `kind`.
    pub(crate) fn send_output(&mut self, kind: u8, parts: &[&[u8]]) {
        self.compact();
        encode_bytes::<FromGate>(kind, parts, &mut self.outbox)
            .expect("the scratch buffer is within bounds");
        self.flush();
    }

    /// Sends as much as the node accepts now.
    pub(crate) fn flush(&mut self) {
        while let (Some(stream), Some(unsent)) = (&self.stream, self.unsent()) {
            match write(stream, unsent) {
                Ok(size_bytes) => self.sent_bytes += size_bytes,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => (),
                Err(_) => self.close(),
            }
        }
        self.compact();
    }

    /// Reads once and returns the complete messages; breaks the connection at its end, after an error, and
    /// after an invalid message.
    pub(crate) fn receive(&mut self, scratch: &mut [u8]) -> Vec<ToGate> {
        let Some(stream) = &self.stream else {
            return Vec::new();
        };
        match read(stream, &mut *scratch) {
            Ok(0) => self.close(),
            Ok(size_bytes) => self.decoder.push(&scratch[..size_bytes]),
            Err(Errno::AGAIN | Errno::INTR) => (),
            Err(_) => self.close(),
        }
        let mut messages = Vec::new();
        loop {
            match self.decoder.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return messages,
                Err(error) => {
                    complain(&format!("invalid message from the node: {error}"));
                    self.close();
                    return messages;
                }
            }
        }
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        self.stream = None;
        self.outbox = Vec::new();
        self.sent_bytes = 0;
    }

    fn unsent(&self) -> Option<&[u8]> {
        Some(&self.outbox[self.sent_bytes..]).filter(|unsent| !unsent.is_empty())
    }

    fn compact(&mut self) {
        self.outbox.drain(..self.sent_bytes);
        self.sent_bytes = 0;
        if self.stream.is_none() {
            self.outbox.clear();
        }
    }
}
