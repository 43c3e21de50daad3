//! Starts the real servers that tests talk to: NATS and an S3 server, on loopback and a port that
//! was free, killed and swept away when the value is dropped. What they serve is left to the tests,
//! but for one conformance suite a port (a feature, `ports`), which its double passes beside the
//! real thing; and for the double of the container engine, which several crates use.
//!
//! A server that is not installed fails the test that needs it, with a message that says how to
//! get it; a test is never skipped for it. For tests and the simulator only: nothing here ships.

#![expect(
    clippy::missing_panics_doc,
    reason = "helpers of tests: whatever goes wrong ends the test, and that is all there is to say"
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

pub mod machine;
pub mod nats;
pub mod registry;
pub mod s3;
pub mod traces;

mod process;
mod scratch;
mod tool;

pub use machine::Machine;
pub use nats::{NatsConfig, NatsServer};
pub use registry::RegistryServer;
pub use s3::S3Server;
pub use scratch::Scratch;
pub use traces::TraceReceiver;
