//! The artifacts that an event names.
//!
//! `audit` decides which of them belong into a bundle, `retention` decides how long they are kept.

use crate::capsule::{Base, Image, Registration};
use crate::digest::Digest;
use crate::run::{Ended, Event, FileEntry, Launched, LogsSummary, Payload, Snapshot, Work};
use crate::spending;

/// The role of an artifact in the event that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A payload, an output, a file, or a model request or answer.
    File,
    Logs,
    /// The `schema.json`, `agent.yaml`, `tools.yaml` or `workflow.yaml` of a capsule.
    Manifest,
    /// A part of the image of a capsule, or its packed directory.
    Image,
}

/// An artifact as an event names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub digest: Digest,
    /// None if the event does not have the size.
    pub size_bytes: Option<u64>,
    pub role: Role,
}

/// The artifacts that a state event of a run names.
pub fn named_by(event: &Event) -> Vec<Named> {
    match event {
        Event::Launched(launched) | Event::Requested(launched) | Event::Reused(launched) => {
            named_by_launch(launched)
        }
        Event::StepEnded(step) => {
            let outputs = step.outputs.as_ref().and_then(of_payload);
            outputs
                .into_iter()
                .chain(step.snapshot.as_ref().map(of_snapshot))
                .collect()
        }
        Event::AttemptFailed(failed) => failed.logs.iter().map(of_logs).collect(),
        Event::Ended(ended) => named_by_end(ended),
        Event::Admitted(_)
        | Event::AdmissionReturned(_)
        | Event::Delivered(_)
        | Event::Leased(_)
        | Event::AttemptLost(_)
        | Event::AttemptRefused(_)
        | Event::CancelRequested(_)
        | Event::Sealed(_) => Vec::new(),
    }
}

/// The artifacts that a run needs at its beginning.
pub fn named_by_launch(launched: &Launched) -> Vec<Named> {
    let mut named = Vec::new();
    named.extend(of_payload(&launched.payload));
    named.extend(launched.files.iter().map(of_file));
    match &launched.work {
        Work::Capsule {
            schema,
            content,
            image,
            workflow,
            ..
        } => {
            named.push(of(*schema, Role::Manifest));
            named.extend(workflow.map(|digest| of(digest, Role::Manifest)));
            named.push(of(*content, Role::Image));
            named.extend(of_image(image));
        }
        Work::Build { content, .. } => named.push(of(*content, Role::Image)),
    }
    named
}

/// The artifacts of a result.
pub fn named_by_end(ended: &Ended) -> Vec<Named> {
    let mut named = Vec::new();
    named.extend(ended.output.as_ref().and_then(of_payload));
    named.extend(ended.files.iter().map(of_file));
    named.extend(ended.logs.as_ref().map(of_logs));
    named
}

/// The stored request and answer of a model call.
pub fn named_by_spending(event: &spending::Event) -> Vec<Named> {
    let spending::Event::Settled(settled) = event else {
        return Vec::new();
    };
    let contents = settled.contents.iter();
    let kept = contents.flat_map(|contents| contents.request.into_iter().chain(contents.answer));
    kept.map(|kept| of(kept.digest, Role::File)).collect()
}

/// The artifacts that calls of a capsule need, and those it was registered from.
pub fn named_by_registration(registration: &Registration) -> Vec<Named> {
    let manifests = [
        Some(registration.schema),
        registration.agent,
        registration.tools,
        registration.workflow,
    ];
    let manifests = manifests.into_iter().flatten();
    manifests
        .map(|digest| of(digest, Role::Manifest))
        .chain([of(registration.content, Role::Image)])
        .chain(of_image(&registration.image))
        .chain(of_bases(&registration.bases))
        .collect()
}

/// The artifacts of an image.
pub fn of_image(image: &Image) -> impl Iterator<Item = Named> {
    image
        .artifacts()
        .into_iter()
        .map(|digest| of(digest, Role::Image))
}

/// The artifacts of base images that the image of their capsule does not name.
pub fn of_bases(bases: &[Base]) -> impl Iterator<Item = Named> {
    let artifacts = bases.iter().flat_map(Base::artifacts);
    artifacts.map(|digest| of(digest, Role::Image))
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

const fn of_snapshot(snapshot: &Snapshot) -> Named {
    Named {
        digest: snapshot.digest,
        size_bytes: Some(snapshot.size_bytes),
        role: Role::File,
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
