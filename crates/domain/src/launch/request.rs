//! The hash of a request: the same idempotency key with another hash is a mistake of the caller.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::Wanted;
use crate::contract::canonical;
use crate::digest::{Digest, Hasher};
use crate::subject::Pool;

/// What the caller of a root says about it, beside what to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Terms {
    pub labels: BTreeMap<String, String>,
    /// From the request to the end of the run.
    pub deadline_seconds: u32,
    /// The order among runs that wait for admission.
    pub priority: i8,
    /// Whether the run ends when its waiting caller disconnects.
    pub is_cancelled_on_disconnect: bool,
}

impl Terms {
    /// The hash of all of them.
    pub fn digest(&self) -> Digest {
        let mut hasher = Hasher::new();
        add(&mut hasher, b"terms", self);
        hasher.finish()
    }
}

/// The hash of everything that the caller said about `wanted`; `name` is the capsule that its target resolves to.
pub(super) fn request_digest(name: &str, wanted: &Wanted) -> Digest {
    let mut hasher = Hasher::new();
    hasher.field(name.as_bytes());
    hasher.field(&canonical(&Value::Object(wanted.arguments.clone())));
    let files = wanted.files.iter();
    let mut files: Vec<_> = files
        .map(|file| (file.name.as_str(), file.digest))
        .collect();
    files.sort_unstable();
    for (name, digest) in files {
        hasher.field(name.as_bytes());
        hasher.field(digest.as_bytes());
    }
    let pool = wanted.pool.as_ref().map_or("", Pool::as_str);
    hasher.field(pool.as_bytes());
    hasher.field(&wanted.timeout_seconds.unwrap_or_default().to_be_bytes());
    if !wanted.retries.is_none() {
        hasher.field(&wanted.retries.capsule.to_be_bytes());
        hasher.field(&wanted.retries.time.to_be_bytes());
    }
    if !wanted.limits.is_none() {
        add(&mut hasher, b"limits", &wanted.limits);
    }
    if !wanted.requirements.is_nothing() {
        add(&mut hasher, b"requirements", &wanted.requirements);
    }
    if !wanted.budget.is_none() {
        add(&mut hasher, b"budget", &wanted.budget);
    }
    hasher.finish()
}

fn add(hasher: &mut Hasher, name: &[u8], value: &impl Serialize) {
    hasher.field(name);
    hasher.field(&serde_json::to_vec(value).expect("fields of requests are plain data"));
}
