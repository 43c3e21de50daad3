//! The broker that `aod up` starts: a nats-server of this host, else a container.

mod config;
mod port;
mod program;
mod server;

pub(crate) use self::port::kept as kept_port;
pub(crate) use self::program::find;
pub(crate) use self::server::{Choice, NatsServer, pause};
