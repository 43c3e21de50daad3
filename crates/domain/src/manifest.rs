//! The manifests of a capsule, `agent.yaml` and `tools.yaml`, and the names by which callers call it.
//!
//! Only parsing: the operator's settings limit what a manifest requests, and each call is checked where it is made,
//! against the manifest registered with the image.

mod agent;
mod fields;
mod model;
mod name;
mod node;
mod reader;
mod tools;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::node::Node;
use self::reader::Reader;
pub use crate::name::{CapsuleName, MalformedName};
pub use agent::{
    AgentManifest, Limits, Network, OutputMode, Prompts, Retries, Secret, is_secret_name,
    looks_like_key,
};
pub use model::{Model, Settings, Thinking};
pub use name::{Registered, ResolveError, resolve, slug};
pub use tools::{Allowed, CapsuleGrant, Function, McpServer, ToolsManifest, Transport};

/// Largest manifest, in bytes: thousands of lines; people write dozens.
pub const MANIFEST_SIZE_BYTES_MAX: usize = 64 * 1024;

/// One mistake in a manifest, and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestProblem {
    /// `agent.yaml` or `tools.yaml`.
    pub file: String,
    /// From 1; 0 if the place is unknown.
    pub line: u64,
    /// In characters, from 1; 0 if the place is unknown.
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

/// The value of a YAML file of a capsule's author, whose numbers must keep their values; null if the file is empty.
/// `file` names it in problems.
///
/// # Errors
/// All numbers that 64 bits cannot hold, or else the first other problem.
pub fn read_yaml(
    file: &'static str,
    yaml: &[u8],
    size_bytes_max: usize,
) -> Result<Value, Vec<ManifestProblem>> {
    Reader::read(file, yaml, size_bytes_max, |_, root| {
        root.map_or(Value::Null, Node::into_json)
    })
}
