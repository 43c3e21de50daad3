//! Shared by whole-system tests and benchmarks: a cluster in this process over a real NATS, and a container runtime
//! without containers.

#![expect(
    clippy::missing_panics_doc,
    reason = "every failure here is a failed test"
)]

pub mod client;
pub mod cluster;
pub mod docker_cluster;
pub mod hosts;
pub mod images;
pub mod model_stub;
pub mod nats;
pub mod programs;
pub mod progress;
pub mod recorder;
pub mod simulated;
pub mod statistics;
