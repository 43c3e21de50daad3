//! What the rules need of the world, as traits; adapters are crates of their own.
//!
//! [`runs::Runs`] is the one loop of load, decide, append that gateways and nodes share.

pub mod artifact_store;
pub mod clock;
pub mod container_runtime;
pub mod event_log;
pub mod feed;
pub mod gateways;
pub mod log_stream;
pub mod network;
pub mod presence;
pub mod program;
pub mod retention;
pub mod runs;
pub mod secrets;
pub mod spending;
pub mod work_queue;

/// Whatever an adapter's library reports, as the source of an error of ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
