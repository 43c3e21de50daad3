//! What a capsule says of itself: `agent.yaml` and `tools.yaml`, and the names by which it is called.
//!
//! Parsing only: the operator's policy caps what is asked for here, and whether a call is allowed
//! is decided where calls are made, from the copy that was registered with the image.

mod agent;
mod fields;
mod model;
mod name;
mod reader;
mod tools;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use agent::{
    AgentManifest, Limits, Network, OutputMode, Prompts, Retries, Secret, is_secret_name,
    looks_like_key,
};
pub use model::{Model, Settings, Thinking};
pub use name::{CapsuleName, MalformedName, Registered, ResolveError, resolve, slug};
pub use tools::{Allowed, CapsuleGrant, Function, McpServer, ToolsManifest, Transport};

/// Largest manifest, in bytes: thousands of lines, while people write dozens.
pub const MANIFEST_SIZE_BYTES_MAX: usize = 64 * 1024;

/// One mistake in a manifest, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestProblem {
    /// `agent.yaml` or `tools.yaml`.
    pub file: String,
    /// From 1; 0 when the place is not known.
    pub line: u64,
    /// In characters, from 1; 0 when the place is not known.
    pub column: u64,
    pub message: String,
}

impl fmt::Display for ManifestProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            message,
        } = self;
        match line {
            0 => write!(formatter, "{file}: {message}"),
            _ => write!(formatter, "{file}:{line}:{column}: {message}"),
        }
    }
}

/// The candidate that `word` was probably meant to be: at most a third of it is different.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let distance = |candidate: &str| strsim::damerau_levenshtein(word, candidate);
    let distance_max = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        // A long text is no misspelt word, and comparing it is quadratic.
        .filter(|candidate| word.len().abs_diff(candidate.len()) <= 4 * distance_max.min(64))
        .filter(|_| word.len() <= 256)
        .map(|candidate| (distance(candidate), candidate))
        .filter(|&(distance, _)| distance <= distance_max)
        .min()
        .map(|(_, candidate)| candidate)
}
