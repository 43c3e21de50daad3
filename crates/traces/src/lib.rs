//! Traces: what the log tells of a tree of runs, as spans for whoever collects them.
//!
//! ```text
//! history    a whole tree, read from the log
//! span       a part of a trace
//! runs       spans of runs, their attempts and calls; models: of models and the tools they ask for
//! contents   what was said, for operators who ask for it
//! otlp       spans on the wire, and the receiver
//! exporter   sends each tree once its root has ended
//! ```
//!
//! Nothing is measured for a trace: it is another view on events that are stored anyway, with ids that follow
//! from them, so that telling it twice tells the same. What was said is not in it unless the operator asks for
//! contents: no payloads, no prompts, no answers. Texts of errors never are.

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
