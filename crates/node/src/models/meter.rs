//! Reads the usage in a passing answer, a JSON document or server-sent events, without changing it.

use serde_json::Value;

use super::format::{Reported, Way};

/// Maximum size of a whole answer, or of one event, in bytes; the usage of a longer one is unknown.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// The framing of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Document,
    Events,
}

/// Reads one answer.
#[derive(Debug)]
pub(super) struct Meter {
    way: Way,
    framing: Framing,
    /// An unfinished document or line.
    begun: Vec<u8>,
    is_too_long: bool,
    reported: Reported,
}

impl Meter {
    /// Reads an answer with this media type.
    pub(super) fn new(way: Way, content_type: Option<&str>) -> Self {
        let is_events = content_type.is_some_and(|text| text.starts_with("text/event-stream"));
        Self {
            way,
            framing: if is_events {
                Framing::Events
            } else {
                Framing::Document
            },
            begun: Vec::new(),
            is_too_long: false,
            reported: Reported::default(),
        }
    }

    /// Reads the next bytes.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        if self.framing == Framing::Document {
            self.keep(bytes);
            return;
        }
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.keep(&rest[..end]);
            let line = std::mem::take(&mut self.begun);
            if !std::mem::take(&mut self.is_too_long) {
                self.line(&line);
            }
            rest = &rest[end + 1..];
        }
        self.keep(rest);
    }

    /// Returns the usage at the end of the answer.
    pub(super) fn finish(mut self) -> Reported {
        let rest = std::mem::take(&mut self.begun);
        if !self.is_too_long {
            match self.framing {
                Framing::Document => self.document(&rest),
                Framing::Events => self.line(&rest),
            }
        }
        self.reported
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.is_too_long || self.begun.len() + bytes.len() > DOCUMENT_BYTES_MAX {
            self.is_too_long = true;
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }

    fn line(&mut self, line: &[u8]) {
        if let Some(data) = line.strip_prefix(b"data:") {
            self.document(data);
        }
    }

    fn document(&mut self, bytes: &[u8]) {
        // The last event of OpenAI's streams is not JSON.
        if let Ok(document) = serde_json::from_slice::<Value>(bytes) {
            self.way.take(&document, &mut self.reported);
        }
    }
}

/// Reads a whole answer; returns the number of its calls of tools.
#[cfg(feature = "fuzzing")]
pub(crate) fn tool_calls(bytes: &[u8]) -> u32 {
    let mut meter = Meter::new(Way::Messages, Some("application/json"));
    meter.read(bytes);
    meter.finish().tool_calls
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes that a meter holds while it reads `piece` endlessly.
    fn held_bytes_max(content_type: &str, piece: &[u8]) -> usize {
        let mut meter = Meter::new(Way::Messages, Some(content_type));
        let pieces = 3 * DOCUMENT_BYTES_MAX / piece.len();
        let held = (0..pieces).map(|_| {
            meter.read(piece);
            meter.begun.capacity()
        });
        held.max().unwrap_or_default()
    }

    #[test]
    fn endless_answer_is_not_held() {
        let piece = vec![b'a'; 64 << 10];
        for content_type in ["application/json", "text/event-stream"] {
            assert!(held_bytes_max(content_type, &piece) <= 2 * DOCUMENT_BYTES_MAX);
        }
        let lines = b"data: {}\n".repeat(7_000);
        assert!(held_bytes_max("text/event-stream", &lines) <= 2 * lines.len());
    }
}
