//! What was said in a tree: arguments and outputs of its runs, and what its models were asked and answered where
//! nodes keep that. Told to whoever collects traces only when the operator asks for it.
//!
//! OpenTelemetry's names stand where its conventions have a place for these very documents, the arguments and
//! the result of a tool. Its `gen_ai.input.messages` and `gen_ai.output.messages` have a form of their own, which
//! the bodies of no provider have: these are told as they were, under names of ours. All are texts, since few
//! receivers take documents in attributes of spans.

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

/// Bytes of one attribute; what is more is cut. A long prompt has them, and receivers take few larger.
pub const CONTENT_BYTES_MAX: usize = 64 << 10;

/// Bytes of contents in one request: receivers take 4 MiB by default, and its spans have one.
const REQUEST_BYTES_MAX: usize = 2 << 20;

/// Something that was said.
#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Payload(&'a Payload),
    Body(&'a Kept),
}

impl Content<'_> {
    /// How many bytes of it are told, at the most.
    fn size_bytes(&self) -> usize {
        let size_bytes = match self {
            Self::Payload(Payload::Inline(_)) => PAYLOAD_INLINE_BYTES_MAX as u64,
            Self::Payload(Payload::Artifact { size_bytes, .. }) => *size_bytes,
            Self::Body(kept) => kept.size_bytes,
        };
        usize::try_from(size_bytes).map_or(CONTENT_BYTES_MAX, |size| size.min(CONTENT_BYTES_MAX))
    }
}

/// What belongs to which span, under which name.
#[derive(Debug, Default)]
pub(crate) struct Contents<'a>(BTreeMap<SpanId, Vec<(&'static str, Content<'a>)>>);

impl<'a> Contents<'a> {
    /// Of all runs of `tree` that have ended, and all calls of models that are over.
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
        // What a build is called with is nothing that anybody said.
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
            // So the convention wants it: of a call that failed there is none.
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

    /// `spans` in pieces, each of which a receiver takes with its contents.
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

    /// Adds what was said to `spans`. What the store does not have is missing.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: another try may do.
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
                        warn!(trace = %span.trace, %name, %error, "a content is missing in a trace");
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

/// The beginning of an artifact, after which `dropped_bytes` were not stored.
async fn stored(
    digest: Digest,
    size_bytes: u64,
    dropped_bytes: u64,
    store: &dyn ArtifactStore,
) -> Result<String, StoreError> {
    let told_bytes = CONTENT_BYTES_MAX as u64;
    // A whole artifact is verified.
    let range = (size_bytes > told_bytes).then_some(0..told_bytes);
    let content = store.get_stream(digest, range).await?;
    let bytes: Vec<_> = content.bytes.try_collect().await?;
    let left = size_bytes.saturating_sub(told_bytes);
    Ok(cut(&bytes.concat(), left.saturating_add(dropped_bytes)))
}

/// What is told of `bytes`, after which `left` are not there. It says how much is missing.
fn cut(bytes: &[u8], left: u64) -> String {
    let mut told = &bytes[..bytes.len().min(CONTENT_BYTES_MAX)];
    let left = left.saturating_add((bytes.len() - told.len()) as u64);
    if left == 0 {
        return String::from_utf8_lossy(told).into_owned();
    }
    // A character may be cut in two.
    let broken = told.utf8_chunks().last();
    let broken = broken.map_or(0, |chunk| chunk.invalid().len());
    told = &told[..told.len() - broken];
    let left = left.saturating_add(broken as u64);
    format!(
        "{} [aod: {left} more bytes were cut]",
        String::from_utf8_lossy(told)
    )
}

#[cfg(test)]
mod tests {
    use aod_domain::run::fixtures::root;
    use aod_domain::trace::TraceId;

    use super::*;

    #[test]
    fn spans_are_divided_so_that_a_receiver_takes_them() {
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
    fn a_content_is_told_whole_or_says_what_is_missing() {
        assert_eq!(cut("ü".as_bytes(), 0), "ü");
        assert_eq!(cut(b"a", 7), "a [aod: 7 more bytes were cut]");
        let long = "x".repeat(CONTENT_BYTES_MAX - 1) + "ü";
        let told = cut(long.as_bytes(), 1);
        let end = told.trim_start_matches('x');
        assert_eq!(end, " [aod: 3 more bytes were cut]");
        assert_eq!(told.len() - end.len(), CONTENT_BYTES_MAX - 1);
    }

    #[test]
    fn what_is_no_text_is_told_as_far_as_it_is() {
        assert_eq!(cut(b"a\xffb", 0), "a\u{fffd}b");
        assert_eq!(
            cut(b"\xffb\xc3", 2),
            "\u{fffd}b [aod: 3 more bytes were cut]"
        );
    }
}
