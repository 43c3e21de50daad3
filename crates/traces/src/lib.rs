//! Traces: the stored events of a tree of runs as OpenTelemetry spans.
//!
//! ```text
//! history    a whole tree, read from the log
//! span       a part of a trace
//! runs       spans of runs, their attempts and calls; models: of models and the tools they ask for
//! contents   payloads, prompts and answers, if the operator enables them
//! otlp       the encoding of spans, and the receiver
//! exporter   sends each tree once its root has ended
//! ```
//!
//! Traces need no measurements: spans and their ids derive from stored events, so that a repeated export is identical.
//! Without `contents`, spans have no payloads, prompts or answers. They never have texts of errors.

mod contents;
mod exporter;
mod history;
mod models;
mod otlp;
mod runs;
mod span;

pub use self::contents::CONTENT_BYTES_MAX;
pub use self::exporter::Exporter;
pub use self::history::{ReadTreeError, TreeHistory};
pub use self::otlp::{MalformedReceiver, Receiver, SendError};
pub use self::span::{Kind, Moment, Span, Value};

/// All spans of a tree; runs that have not ended have none.
pub fn spans(tree: &TreeHistory) -> Vec<Span> {
    let mut spans = runs::spans(tree);
    spans.extend(models::spans(tree));
    spans
}
