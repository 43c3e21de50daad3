//! Which artifacts an event names.
//!
//! What of them belongs into a bundle is decided in `audit`, how long they are kept in `retention`.

use crate::capsule::Registration;
use crate::digest::Digest;
use crate::run::{Event, FileEntry, LogsSummary, Payload, Work};
use crate::spending;

/// What an artifact is to whoever names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A payload, an output, a file, or what was said to a model.
    File,
    Logs,
    /// The `schema.json`, `agent.yaml` or `tools.yaml` of a capsule.
    Manifest,
    /// The saved image of a capsule, or its packed directory.
    Image,
}

/// An artifact as an event names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub digest: Digest,
    /// None where the event does not tell.
    pub size_bytes: Option<u64>,
    pub role: Role,
}

/// The artifacts that a state event of a run names.
pub fn named_by(event: &Event) -> Vec<Named> {
    let mut named = Vec::new();
    match event {
        Event::Launched(launched) | Event::Requested(launched) | Event::Reused(launched) => {
            named.extend(of_payload(&launched.payload));
            named.extend(launched.files.iter().map(of_file));
            match &launched.work {
                Work::Capsule {
                    schema,
                    content,
                    image,
                    ..
                } => {
                    named.push(of(*schema, Role::Manifest));
                    named.push(of(*content, Role::Image));
                    named.push(of(image.archive, Role::Image));
                }
                Work::Build { content, .. } => named.push(of(*content, Role::Image)),
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

/// What was said to a model, where it is kept.
pub fn named_by_spending(event: &spending::Event) -> Vec<Named> {
    let spending::Event::Settled(settled) = event else {
        return Vec::new();
    };
    let contents = settled.contents.iter();
    let kept = contents.flat_map(|contents| contents.request.into_iter().chain(contents.answer));
    kept.map(|kept| of(kept.digest, Role::File)).collect()
}

/// All that a capsule needs to be called, and what it was registered from.
pub fn named_by_registration(registration: &Registration) -> Vec<Named> {
    let manifests = [
        Some(registration.schema),
        registration.agent,
        registration.tools,
    ];
    let manifests = manifests.into_iter().flatten();
    let images = [registration.content, registration.image.archive];
    manifests
        .map(|digest| of(digest, Role::Manifest))
        .chain(images.map(|digest| of(digest, Role::Image)))
        .collect()
}

const fn of(digest: Digest, role: Role) -> Named {
    Named {
        digest,
        size_bytes: None,
        role,
    }
}

fn of_payload(payload: &Payload) -> Option<Named> {
    match *payload {
        Payload::Inline(_) => None,
        Payload::Artifact { digest, size_bytes } => Some(Named {
            digest,
            size_bytes: Some(size_bytes),
            role: Role::File,
        }),
    }
}

const fn of_file(file: &FileEntry) -> Named {
    Named {
        digest: file.digest,
        size_bytes: Some(file.size_bytes),
        role: Role::File,
    }
}

const fn of_logs(logs: &LogsSummary) -> Named {
    Named {
        digest: logs.digest,
        size_bytes: Some(logs.size_bytes),
        role: Role::Logs,
    }
}
