//! Starts the real servers that tests talk to: NATS and an S3 server, on loopback and a port that
//! was free, killed and swept away when the value is dropped. What they serve is left to the tests,
//! but for what every artifact store must do (`artifacts`, a feature).
//!
//! A server that is not installed fails the test that needs it, with a message that says how to
//! get it; a test is never skipped for it. A dev-dependency only: nothing here ships.

#![expect(
    clippy::missing_panics_doc,
    reason = "helpers of tests: whatever goes wrong ends the test, and that is all there is to say"
)]

#[cfg(feature = "artifacts")]
pub mod artifacts;
pub mod nats;
pub mod s3;

mod process;
mod scratch;
mod tool;

pub use nats::{NatsConfig, NatsServer};
pub use s3::S3Server;
pub use scratch::Scratch;
