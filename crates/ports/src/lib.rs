//! Traits for everything outside the domain rules; adapters are separate crates.

pub mod artifact_store;
pub mod clock;
pub mod container_runtime;
pub mod event_log;
pub mod feed;
pub mod gateways;
pub mod log_stream;
pub mod network;
pub mod peers;
pub mod presence;
pub mod secrets;
pub mod work_queue;

/// The error of an adapter's library, as the source of an AOD error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
