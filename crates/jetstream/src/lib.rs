//! The log, the queue of launches, the live tail of outputs, presence and an object store, on NATS
//! JetStream, and transfers between nodes on core NATS. The only crate that uses the NATS client.
//!
//! Start with [`Broker::connect`]. `aod-ports` defines the ports; the modules of this crate describe how
//! JetStream implements them.

mod ack_subject;
mod batch;
mod broker;
mod config;
mod durability;
mod event_log;
mod feed;
mod link;
mod log_stream;
pub mod object_store;
mod peers;
mod presence;
pub mod rights;
mod streams;
mod tail;
mod version;
mod work_queue;

pub use broker::{Broker, ConnectError, Health};
pub use config::{Config, Credentials, CredentialsError, LEASE_SECONDS_DEFAULT, StreamLimits};
pub use durability::Durability;
pub use event_log::JetStreamEventLog;
pub use feed::JetStreamFeed;
pub use log_stream::JetStreamLogStream;
pub use peers::NatsPeers;
pub use presence::JetStreamPresence;
pub use streams::ensure::{Difference, StreamError};
pub use version::{SERVER_VERSION_MIN, ServerVersion};
pub use work_queue::JetStreamWorkQueue;

/// Time limit of one answer of the broker, in seconds: a synced write takes milliseconds, the election
/// of a leader two seconds. The broker does not answer a denied request.
const ANSWER_SECONDS_MAX: u64 = 5;
