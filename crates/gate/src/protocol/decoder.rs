//! The way from bytes, in whatever pieces they come, to messages.

use std::marker::PhantomData;

use thiserror::Error;

use super::{HEADER_SIZE_BYTES, Message, PAYLOAD_SIZE_BYTES_MAX};

/// Why bytes are not a message. The stream has lost its frame borders: close it. Every later call
/// gives the same error.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// No message of this side has this kind.
    #[error("a frame is of the unknown kind {kind:#04x}")]
    UnknownKind {
        /// The frame's first byte.
        kind: u8,
    },
    /// The frame says that its payload is above [`PAYLOAD_SIZE_BYTES_MAX`].
    #[error("a frame announces {size_bytes} bytes, above the bound of {PAYLOAD_SIZE_BYTES_MAX}")]
    TooLarge {
        /// Size of the payload as announced.
        size_bytes: usize,
    },
    /// The payload is not what its kind says.
    #[error("a frame of kind {kind:#04x} has a malformed payload")]
    Malformed {
        /// The frame's first byte.
        kind: u8,
        /// What is wrong with the JSON.
        source: serde_json::Error,
    },
    /// The stream ended within a frame.
    #[error("the stream ended within a frame, {size_bytes} bytes into it")]
    Truncated {
        /// Bytes of the unfinished frame.
        size_bytes: usize,
    },
}

/// Reads messages of one direction from a stream of bytes.
///
/// It holds what was pushed and not yet read. Whoever reads all messages after each push keeps that
/// below one frame, so the bound is [`HEADER_SIZE_BYTES`] + [`PAYLOAD_SIZE_BYTES_MAX`] + one push.
#[derive(Debug)]
pub struct Decoder<M> {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have been read.
    consumed_bytes: usize,
    message: PhantomData<M>,
}

impl<M: Message> Decoder<M> {
    /// A decoder at the beginning of a stream.
    pub const fn new() -> Self {
        Self {
            buffer: Vec::new(),
            consumed_bytes: 0,
            message: PhantomData,
        }
    }

    /// Takes the next bytes of the stream, any number of them.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.consumed_bytes);
        self.consumed_bytes = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, or none before all of its bytes have come.
    ///
    /// # Errors
    /// A wrong header is reported as soon as it is there, without waiting for the payload.
    pub fn next_message(&mut self) -> Result<Option<M>, DecodeError> {
        let unread = &self.buffer[self.consumed_bytes..];
        let Some(&kind) = unread.first() else {
            return Ok(None);
        };
        if !M::is_kind(kind) {
            return Err(DecodeError::UnknownKind { kind });
        }
        let Some((header, rest)) = unread.split_first_chunk::<HEADER_SIZE_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
        let size_bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if size_bytes > PAYLOAD_SIZE_BYTES_MAX {
            return Err(DecodeError::TooLarge { size_bytes });
        }
        let Some(payload) = rest.get(..size_bytes) else {
            return Ok(None);
        };
        let message =
            M::parse(kind, payload).map_err(|source| DecodeError::Malformed { kind, source })?;
        self.consumed_bytes += HEADER_SIZE_BYTES + size_bytes;
        Ok(Some(message))
    }

    /// Call it at the stream's end, when there is no further message.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if that was within a frame.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.buffer.len() - self.consumed_bytes {
            0 => Ok(()),
            size_bytes => Err(DecodeError::Truncated { size_bytes }),
        }
    }
}

impl<M: Message> Default for Decoder<M> {
    fn default() -> Self {
        Self::new()
    }
}
