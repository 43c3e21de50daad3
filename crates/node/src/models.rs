//! Models for capsules: the proxy on a run's channel, which adds the operator's key, meters usage, and enforces the
//! budget of the tree. A key never enters a container.
//!
//! ```text
//! shared     keys, connections and memory, which all attempts share
//! settings   the operator's providers and prices
//! body       the body of a request; asked: the model and limits that it requests
//! format     the three formats of requests and answers
//! meter      reads an answer while it passes
//! access     the grants of one attempt, and its usage
//! call       a call of an attempt, from its request to its answer
//! settlement the end of each call
//! keeping    stores requests and answers, if the operator enables it
//! wire       addresses and headers of requests and answers
//! ```

pub(crate) mod access;
mod asked;
mod body;
pub(crate) mod call;
mod format;
pub(crate) mod keeping;
pub(crate) mod meter;
mod refusal;
mod settings;
mod settlement;
pub(crate) mod shared;
pub(crate) mod wire;

pub use self::keeping::CONTENT_BYTES_MAX;
pub use self::settings::{MalformedModels, ModelSettings};
