//! Contents of a tree: arguments and outputs of its runs, and the requests and answers of its models if nodes store
//! them. Exported only if the operator enables it.
//!
//! Arguments and results of tools use the OpenTelemetry attributes for exactly these documents.
//! `gen_ai.input.messages` and `gen_ai.output.messages` have their own format, which no provider uses: model bodies
//! are exported unchanged, under AOD's own names. All values are strings, because few receivers accept structured
//! attributes.

use std::collections::BTreeMap;

use aod_domain::digest::Digest;
use aod_domain::run::{Outcome, PAYLOAD_INLINE_BYTES_MAX, Payload, Work};
use aod_domain::spending::{Event, Kept};
use aod_domain::trace::SpanId;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use futures::TryStreamExt as _;
use tracing::warn;

use crate::history::{RunHistory, TreeHistory};
use crate::span::Span;

/// Maximum size of an attribute; the rest is cut. Enough for a long prompt; few receivers accept more.
pub const CONTENT_BYTES_MAX: usize = 64 << 10;

/// Maximum size of contents in one request: receivers accept 4 MiB by default, and the spans take one.
const REQUEST_BYTES_MAX: usize = 2 << 20;

/// A content of a span.
#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Payload(&'a Payload),
    Body(&'a Kept),
}

impl Content<'_> {
    /// Maximum size of its exported part, in bytes.
    fn size_bytes(&self) -> usize {
        let size_bytes = match self {
            Self::Payload(Payload::Inline(_)) => PAYLOAD_INLINE_BYTES_MAX as u64,
            Self::Payload(Payload::Artifact { size_bytes, .. }) => *size_bytes,
            Self::Body(kept) => kept.size_bytes,
        };
        usize::try_from(size_bytes).map_or(CONTENT_BYTES_MAX, |size| size.min(CONTENT_BYTES_MAX))
    }
}

/// Contents by span and attribute name.
#[derive(Debug, Default)]
pub(crate) struct Contents<'a>(BTreeMap<SpanId, Vec<(&'static str, Content<'a>)>>);

impl<'a> Contents<'a> {
    /// The contents of all ended runs of `tree`, and of all finished model calls.
    pub(crate) fn of(tree: &'a TreeHistory) -> Self {
        let mut contents = Self::default();
        for run in tree.runs.values() {
            contents.take_run(run);
        }
        for recorded in &tree.spending {
            let Event::Settled(settled) = &recorded.event else {
                continue;
            };
            let Some(kept) = &settled.contents else {
                continue;
            };
            let span = SpanId::of_event(settled.call.id);
            let bodies = [
                ("aod.model.request", &kept.request),
                ("aod.model.answer", &kept.answer),
            ];
            for (name, body) in bodies {
                contents.add(span, name, body.as_ref().map(Content::Body));
            }
        }
        contents
    }

    fn take_run(&mut self, run: &'a RunHistory) {
        let launched = &run.launched.event;
        // The input of a build is not a content.
        let (Some(ended), Work::Capsule { .. }) = (run.ended(), &launched.work) else {
            return;
        };
        let arguments = Some(Content::Payload(&launched.payload));
        let ended = ended.event;
        let output = ended.output.as_ref().map(Content::Payload);
        let own = SpanId::of_run(run.id);
        self.add(own, "aod.run.arguments", arguments);
        self.add(own, "aod.run.output", output);
        if launched.parent.is_some() {
            let handoff = SpanId::of_handoff(run.id);
            // Required by the convention: a failed call has no result.
            let result = output.filter(|_| ended.outcome == Outcome::Succeeded);
            self.add(handoff, "gen_ai.tool.call.arguments", arguments);
            self.add(handoff, "gen_ai.tool.call.result", result);
        }
    }

    fn add(&mut self, span: SpanId, name: &'static str, content: Option<Content<'a>>) {
        if let Some(content) = content {
            self.0.entry(span).or_default().push((name, content));
        }
    }

    fn of_span(&self, span: &Span) -> &[(&'static str, Content<'a>)] {
        self.0.get(&span.id).map_or(&[], Vec::as_slice)
    }

    /// Splits `spans` into requests that a receiver accepts with their contents.
    pub(crate) fn divide(&self, spans: Vec<Span>) -> Vec<Vec<Span>> {
        let mut pieces: Vec<Vec<Span>> = Vec::new();
        let mut left = 0;
        for span in spans {
            let contents = self.of_span(&span).iter();
            let size_bytes: usize = contents.map(|(_, content)| content.size_bytes()).sum();
            match pieces.last_mut() {
                Some(piece) if size_bytes <= left => piece.push(span),
                _ => {
                    left = REQUEST_BYTES_MAX;
                    pieces.push(vec![span]);
                }
            }
            left = left.saturating_sub(size_bytes);
        }
        pieces
    }

    /// Adds contents to `spans`, except those that the store does not have.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: a retry may succeed.
    pub(crate) async fn tell(
        &self,
        spans: &mut [Span],
        store: &dyn ArtifactStore,
    ) -> Result<(), StoreError> {
        for span in spans {
            for (name, content) in self.of_span(span) {
                match text(content, store).await {
                    Ok(text) => span.attributes.push((name, text.into())),
                    Err(error @ StoreError::Unavailable { .. }) => return Err(error),
                    Err(error) => {
                        warn!(trace = %span.trace, %name, %error, "content omitted from a trace");
                    }
                }
            }
        }
        Ok(())
    }
}

async fn text(content: &Content<'_>, store: &dyn ArtifactStore) -> Result<String, StoreError> {
    match content {
        Content::Payload(Payload::Inline(value)) => Ok(cut(value.to_string().as_bytes(), 0)),
        Content::Payload(Payload::Artifact { digest, size_bytes }) => {
            stored(*digest, *size_bytes, 0, store).await
        }
        Content::Body(kept) => {
            stored(kept.digest, kept.size_bytes, kept.dropped_bytes, store).await
        }
    }
}

/// The beginning of an artifact; `dropped_bytes` after it were not stored.
async fn stored(
    digest: Digest,
    size_bytes: u64,
    dropped_bytes: u64,
    store: &dyn ArtifactStore,
) -> Result<String, StoreError> {
    let kept_bytes = CONTENT_BYTES_MAX as u64;
    // The store verifies whole artifacts.
    let range = (size_bytes > kept_bytes).then_some(0..kept_bytes);
    let content = store.get_stream(digest, range).await?;
    let bytes: Vec<_> = content.bytes.try_collect().await?;
    let left = size_bytes.saturating_sub(kept_bytes);
    Ok(cut(&bytes.concat(), left.saturating_add(dropped_bytes)))
}

/// The exported text of `bytes`, with a note about the `left` missing bytes.
fn cut(bytes: &[u8], left: u64) -> String {
    let mut kept = &bytes[..bytes.len().min(CONTENT_BYTES_MAX)];
    let left = left.saturating_add((bytes.len() - kept.len()) as u64);
    if left == 0 {
        return String::from_utf8_lossy(kept).into_owned();
    }
    // The cut may be within a character.
    let broken = kept.utf8_chunks().last();
    let broken = broken.map_or(0, |chunk| chunk.invalid().len());
    kept = &kept[..kept.len() - broken];
    let left = left.saturating_add(broken as u64);
    format!(
        "{} [aod: {left} more bytes were cut]",
        String::from_utf8_lossy(kept)
    )
}

#[cfg(test)]
mod tests {
    use aod_domain::run::fixtures::root;
    use aod_domain::trace::TraceId;

    use super::*;

    #[test]
    fn spans_are_split_into_requests_that_receivers_accept() {
        let kept = Kept {
            digest: Digest::of("a long answer"),
            size_bytes: 4 << 20,
            dropped_bytes: 0,
        };
        let trace = TraceId::of(root(), None);
        let ids = (0..40).map(|number| SpanId::of_attempt(root(), number));
        let spans: Vec<_> = ids
            .map(|id| Span::new(trace, id, None, "chat".to_owned()))
            .collect();
        let mut contents = Contents::default();
        let lengths = |contents: &Contents<'_>| -> Vec<usize> {
            let pieces = contents.divide(spans.clone());
            pieces.iter().map(Vec::len).collect()
        };
        assert_eq!(lengths(&contents), [40]);
        for span in &spans {
            for name in ["aod.model.request", "aod.model.answer"] {
                contents.add(span.id, name, Some(Content::Body(&kept)));
            }
        }
        assert_eq!(lengths(&contents), [16, 16, 8]);
    }

    #[test]
    fn cut_content_states_number_of_missing_bytes() {
        assert_eq!(cut("ü".as_bytes(), 0), "ü");
        assert_eq!(cut(b"a", 7), "a [aod: 7 more bytes were cut]");
        let long = "x".repeat(CONTENT_BYTES_MAX - 1) + "ü";
        let kept = cut(long.as_bytes(), 1);
        let end = kept.trim_start_matches('x');
        assert_eq!(end, " [aod: 3 more bytes were cut]");
        assert_eq!(kept.len() - end.len(), CONTENT_BYTES_MAX - 1);
    }

    #[test]
    fn invalid_utf8_is_exported_with_replacement_characters() {
        assert_eq!(cut(b"a\xffb", 0), "a\u{fffd}b");
        assert_eq!(
            cut(b"\xffb\xc3", 2),
            "\u{fffd}b [aod: 3 more bytes were cut]"
        );
    }
}
