//! The broker that `aod up` starts: a nats-server of this host, else one in a container.

mod config;
mod program;
mod server;

pub(crate) use self::program::find;
pub(crate) use self::server::{Choice, NatsServer};
