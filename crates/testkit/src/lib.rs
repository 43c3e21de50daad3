//! Starts real servers for tests: NATS and an S3 server, on loopback and a free port, killed and removed when the
//! value is dropped. Also contains one conformance suite for each port (feature `ports`), which the doubles and the
//! real adapters pass, and the double of the container engine, which several crates use.
//!
//! A missing server fails the test that needs it, with a message that names how to install it; tests are never skipped
//! for it. For tests and the simulator only: nothing here ships.

#![expect(
    clippy::missing_panics_doc,
    reason = "helpers of tests: every error ends the test"
)]

#[cfg(feature = "ports")]
pub mod artifacts;
#[cfg(feature = "ports")]
pub mod capsules;
#[cfg(feature = "ports")]
pub mod clock;
#[cfg(feature = "ports")]
pub mod container_runtime;
#[cfg(feature = "ports")]
pub mod engine;
#[cfg(feature = "ports")]
pub mod event_log;
#[cfg(feature = "ports")]
pub mod events;
#[cfg(feature = "ports")]
pub mod feed;
#[cfg(feature = "gateways")]
pub mod gateways;
#[cfg(feature = "ports")]
pub mod live;
#[cfg(feature = "ports")]
pub mod work_queue;

pub mod disk;
pub mod machine;
pub mod nats;
pub mod registry;
pub mod s3;
pub mod traces;

mod process;
mod scratch;
mod tool;

pub use disk::TinyDisk;
pub use machine::Machine;
pub use nats::{NatsConfig, NatsServer};
pub use registry::RegistryServer;
pub use s3::S3Server;
pub use scratch::Scratch;
pub use traces::TraceReceiver;
