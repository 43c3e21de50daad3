//! The long-running programs, wired from the adapters: a gateway, a node, and a whole cluster on one machine.

pub mod certificates;
pub mod credentials;
pub mod data;
pub mod gateway;
pub mod local;
pub mod node;
pub mod traces;
pub mod users;
pub mod wiring;

pub(crate) mod connection;
pub(crate) mod docker;
pub(crate) mod nats;
pub(crate) mod private;
pub(crate) mod signals;
