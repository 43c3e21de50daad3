//! A part of a trace, before it is encoded.

use aod_domain::trace::{SpanId, TraceId};
use jiff::Timestamp;

/// The role of a span in its communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Internal,
    /// It sends a request: to a callee, a model provider, an external host.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Integer(i64),
    Number(f64),
    Truth(bool),
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

/// Name and value; names follow the OpenTelemetry conventions for GenAI; AOD's own begin with `aod.`.
pub(crate) type Attribute = (&'static str, Value);

/// An event without a duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    pub name: String,
    pub at: Timestamp,
    pub attributes: Vec<Attribute>,
}

/// An operation with a duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    pub parent: Option<SpanId>,
    pub name: String,
    pub kind: Kind,
    pub began: Timestamp,
    /// Never before `began`, even if the clocks of hosts differ.
    pub ended: Timestamp,
    pub attributes: Vec<Attribute>,
    pub moments: Vec<Moment>,
    /// The code of its final error.
    pub error: Option<String>,
}

impl Span {
    pub(crate) fn new(trace: TraceId, id: SpanId, parent: Option<SpanId>, name: String) -> Self {
        Self {
            trace,
            id,
            parent,
            name,
            kind: Kind::Internal,
            began: Timestamp::UNIX_EPOCH,
            ended: Timestamp::UNIX_EPOCH,
            attributes: Vec::new(),
            moments: Vec::new(),
            error: None,
        }
    }

    #[must_use]
    pub(crate) fn client(mut self) -> Self {
        self.kind = Kind::Client;
        self
    }

    #[must_use]
    pub(crate) fn during(mut self, began: Timestamp, ended: Timestamp) -> Self {
        self.began = began;
        self.ended = ended.max(began);
        self
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    #[must_use]
    pub(crate) fn failed(mut self, error: Option<String>) -> Self {
        if let Some(code) = &error {
            self.attributes.push(("error.type", code.as_str().into()));
        }
        self.error = error;
        self
    }
}
