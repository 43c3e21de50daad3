//! The trace of a tree of runs: one trace for each root, with ids derived from its runs, so that a trace that is sent
//! twice is identical. Format of the ids: W3C Trace Context.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::digest::{Digest, Hasher};
use crate::id::{EventId, RunId};
use crate::text::{self, from_hex};

/// A whole trace; as text 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

/// A part of a trace; as text 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// For the tree of `root`; its request may have belonged to the trace `origin`.
    pub fn of(root: RunId, origin: Option<TraceParent>) -> Self {
        match origin {
            Some(origin) => origin.trace,
            None => Self(Digest::of(root.root().token()).prefix()),
        }
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    /// The span of a run, from its launch to its result.
    pub fn of_run(run: RunId) -> Self {
        Self::named(&[b"run", run.token().as_bytes()])
    }

    /// The span of one attempt.
    pub fn of_attempt(run: RunId, attempt: u32) -> Self {
        Self::named(&[b"attempt", run.token().as_bytes(), &attempt.to_be_bytes()])
    }

    /// The span of the call that made `callee`, as its caller sees it.
    pub fn of_handoff(callee: RunId) -> Self {
        Self::named(&[b"handoff", callee.token().as_bytes()])
    }

    /// The span of a model call, or of another event.
    pub fn of_event(event: EventId) -> Self {
        Self::named(&[b"event", event.token().as_bytes()])
    }

    /// The span of the `index`th tool that the model requested in the answer to `call`.
    pub fn of_tool(call: EventId, index: u32) -> Self {
        Self::named(&[b"tool", call.token().as_bytes(), &index.to_be_bytes()])
    }

    fn named(fields: &[&[u8]]) -> Self {
        let mut hasher = Hasher::new();
        for field in fields {
            hasher.field(field);
        }
        let mut id = [0; 8];
        id.copy_from_slice(&hasher.finish().as_bytes()[..8]);
        Self(id)
    }

    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_write(&self.0, formatter)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_write(&self.0, formatter)
    }
}

/// A position in a trace, as in the header `traceparent` and the variable `TRACEPARENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: TraceId,
    pub parent: SpanId,
}

/// A text that is not a position in a trace.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("expected a traceparent, 00-<32 digits>-<16 digits>-<2 digits>")]
pub struct MalformedTraceParent;

impl fmt::Display for TraceParent {
    /// Sampled: a trace is sent as a whole or not at all.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{}-{}-01", self.trace, self.parent)
    }
}

impl FromStr for TraceParent {
    type Err = MalformedTraceParent;

    /// Accepts later versions as far as they follow the first. Source: W3C Trace Context, 3.2.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, parent, flags, later @ ..] = parts.as_slice() else {
            return Err(MalformedTraceParent);
        };
        let version: [u8; 1] = from_hex(version).ok_or(MalformedTraceParent)?;
        from_hex::<1>(flags).ok_or(MalformedTraceParent)?;
        if version == [0xff] || (version == [0] && !later.is_empty()) {
            return Err(MalformedTraceParent);
        }
        let trace = from_hex(trace).filter(|trace| *trace != [0; 16]);
        let parent = from_hex(parent).filter(|parent| *parent != [0; 8]);
        Ok(Self {
            trace: TraceId(trace.ok_or(MalformedTraceParent)?),
            parent: SpanId(parent.ok_or(MalformedTraceParent)?),
        })
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_round_trips() {
        let place: TraceParent = PLACE.parse().expect("it is one");
        assert_eq!(place.to_string(), PLACE);
        let later = format!("cc{}-what-comes", &PLACE[2..]);
        assert_eq!(later.parse(), Ok(place));
    }

    #[test]
    fn malformed_traceparent_is_refused() {
        let zeros = PLACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        for text in [
            "",
            "00",
            &PLACE[..54],
            &format!("{PLACE}-more"),
            &format!("ff{}", &PLACE[2..]),
            &PLACE.to_uppercase(),
            &zeros,
            "00-é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(
                text.parse::<TraceParent>(),
                Err(MalformedTraceParent),
                "{text}"
            );
        }
    }

    #[test]
    fn tree_has_the_trace_of_its_request() {
        let root = RunId::root_of_key(&Digest::of("a"));
        let place: TraceParent = PLACE.parse().expect("it is one");
        assert_eq!(TraceId::of(root, Some(place)), place.trace);
        assert_ne!(TraceId::of(root, None), place.trace);
        assert_ne!(SpanId::of_attempt(root, 1), SpanId::of_attempt(root, 2));
    }
}
