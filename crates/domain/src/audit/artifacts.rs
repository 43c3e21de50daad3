//! Which artifacts belong to an event, and so into a bundle.
//!
//! Images and packed directories of capsules do not: they are large, shared by many trees, and their digests
//! stand in the launches.

use crate::digest::Digest;
use crate::run::{Event, FileEntry, LogsSummary, Payload, Work};

/// An artifact as an event names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub digest: Digest,
    /// None where the event does not tell.
    pub size_bytes: Option<u64>,
}

/// The artifacts that `event` names: payloads, outputs, files, logs, and the capsule's schema.
pub fn named_by(event: &Event) -> Vec<Named> {
    let mut named = Vec::new();
    match event {
        Event::Launched(launched) | Event::Requested(launched) | Event::Reused(launched) => {
            named.extend(of_payload(&launched.payload));
            named.extend(launched.files.iter().map(of_file));
            if let Work::Capsule { schema, .. } = launched.work {
                named.push(Named {
                    digest: schema,
                    size_bytes: None,
                });
            }
        }
        Event::AttemptFailed(failed) => named.extend(failed.logs.as_ref().map(of_logs)),
        Event::Ended(ended) => {
            named.extend(ended.output.as_ref().and_then(of_payload));
            named.extend(ended.files.iter().map(of_file));
            named.extend(ended.logs.as_ref().map(of_logs));
        }
        Event::Admitted(_)
        | Event::Returned(_)
        | Event::Delivered(_)
        | Event::Leased(_)
        | Event::AttemptLost(_)
        | Event::Refused(_)
        | Event::CancelRequested(_)
        | Event::Sealed(_) => (),
    }
    named
}

fn of_payload(payload: &Payload) -> Option<Named> {
    match *payload {
        Payload::Inline(_) => None,
        Payload::Artifact { digest, size_bytes } => Some(Named {
            digest,
            size_bytes: Some(size_bytes),
        }),
    }
}

const fn of_file(file: &FileEntry) -> Named {
    Named {
        digest: file.digest,
        size_bytes: Some(file.size_bytes),
    }
}

const fn of_logs(logs: &LogsSummary) -> Named {
    Named {
        digest: logs.digest,
        size_bytes: Some(logs.size_bytes),
    }
}
