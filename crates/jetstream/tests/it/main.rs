//! The adapters against a real nats-server.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod chains;
mod cluster;
mod conformance;
mod connect;
mod event_log;
mod follow;
mod kills;
mod live;
mod object_store;
mod peers;
mod power_loss;
mod support;
mod witness;
mod work_queue;
