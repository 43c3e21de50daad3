//! Decodes messages from a stream of bytes in arbitrary pieces.

use std::marker::PhantomData;

use thiserror::Error;

use super::{HEADER_SIZE_BYTES, Message};

/// Why bytes are not a message. The frame boundaries are lost: close the stream. Every later call
/// returns the same error.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// No message of this side has this kind.
    #[error("a frame has the unknown kind {kind:#04x}")]
    UnknownKind {
        /// The frame's first byte.
        kind: u8,
    },
    /// The frame announces a payload above [`Message::SIZE_BYTES_MAX`].
    #[error("a frame announces {size_bytes} bytes, above the maximum of {size_bytes_max}")]
    TooLarge {
        /// Size of the payload as announced.
        size_bytes: usize,
        /// The maximum of its direction.
        size_bytes_max: usize,
    },
    /// The payload does not match its kind.
    #[error("a frame of kind {kind:#04x} has an invalid payload")]
    Malformed {
        /// The frame's first byte.
        kind: u8,
        /// The error of the JSON.
        source: serde_json::Error,
    },
    /// The stream ended within a frame.
    #[error("the stream ended within a frame, after {size_bytes} bytes of it")]
    Truncated {
        /// Bytes of the incomplete frame.
        size_bytes: usize,
    },
}

/// Reads messages of one direction from a stream of bytes.
///
/// Buffers bytes that were pushed and not yet read. A caller that reads all messages after each push keeps
/// the buffer below [`HEADER_SIZE_BYTES`] + [`Message::SIZE_BYTES_MAX`] + one push.
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

    /// The next message, or none before all of its bytes have arrived.
    ///
    /// # Errors
    /// An invalid header is an error immediately, before the payload arrives.
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
        if size_bytes > M::SIZE_BYTES_MAX {
            return Err(DecodeError::TooLarge {
                size_bytes,
                size_bytes_max: M::SIZE_BYTES_MAX,
            });
        }
        let Some(payload) = rest.get(..size_bytes) else {
            return Ok(None);
        };
        let message =
            M::parse(kind, payload).map_err(|source| DecodeError::Malformed { kind, source })?;
        self.consumed_bytes += HEADER_SIZE_BYTES + size_bytes;
        Ok(Some(message))
    }

    /// Checks the end of the stream, after the last message.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the stream ended within a frame.
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
