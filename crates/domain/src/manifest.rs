//! The manifests of a capsule, `agent.yaml` and `tools.yaml`, and the names by which callers call it.
//!
//! Only parsing: the operator's settings limit what a manifest requests, and each call is checked where it is made,
//! against the manifest registered with the image.

mod agent;
mod fields;
mod model;
mod name;
mod tools;

#[cfg(test)]
mod tests;

pub use crate::name::{CapsuleName, MalformedName};
pub use agent::{
    AgentManifest, Limits, Network, OutputMode, Prompts, Retries, Secret, is_secret_name,
    looks_like_key,
};
pub(crate) use agent::{environment, secret_name};
pub use model::{Model, Settings, Thinking};
pub use name::{Registered, ResolveError, resolve, slug};
pub use tools::{Allowed, CapsuleGrant, Function, McpServer, ToolsManifest, Transport};

/// Largest manifest, in bytes: thousands of lines; people write dozens.
pub const MANIFEST_SIZE_BYTES_MAX: usize = 64 * 1024;
