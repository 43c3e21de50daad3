//! The protocol between gate and node, in frames.

use aod_gate::protocol::{Decoder, FromGate, HEADER_SIZE_BYTES, Message, ToGate};

/// Both directions: the messages do not depend on how the bytes are split, and encode to the same messages.
pub fn check(bytes: &[u8]) {
    check_direction::<FromGate>(bytes);
    check_direction::<ToGate>(bytes);
    for message in read::<FromGate>(bytes, bytes.len()).0 {
        if let FromGate::Exited(exited) = message {
            exited.exit_code();
        }
    }
}

fn check_direction<M: Message + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let (messages, error) = read::<M>(bytes, bytes.len().max(1));
    for piece in [1, 3, HEADER_SIZE_BYTES + 2] {
        let (other_messages, other_error) = read::<M>(bytes, piece);
        assert_eq!((&messages, &error), (&other_messages, &other_error));
    }
    let mut frames = Vec::new();
    for message in &messages {
        // A text that was escaped in fewer bytes may not fit when it is encoded again.
        if message.encode(&mut frames).is_err() {
            return;
        }
    }
    assert_eq!(read::<M>(&frames, frames.len().max(1)), (messages, None));
}

/// The messages in `bytes`, which arrive in pieces of `piece` bytes, and why there are no more.
fn read<M: Message>(bytes: &[u8], piece: usize) -> (Vec<M>, Option<String>) {
    let mut decoder = Decoder::<M>::new();
    let mut messages = Vec::new();
    for bytes in bytes.chunks(piece.max(1)) {
        decoder.push(bytes);
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error.to_string())),
            }
        }
    }
    let error = decoder.finish().err().map(|error| error.to_string());
    (messages, error)
}
