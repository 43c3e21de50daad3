//! The program itself, as people start it: on real NATS and real Docker, in data directories of its own.

mod cluster;
mod kit;
mod lifecycle;
mod offline;
mod runs;
mod tls;
