//! Tests of the program `aod` on real NATS and Docker, each in its own data directory.

mod cluster;
mod kit;
mod lifecycle;
mod offline;
mod restore;
mod runs;
mod tls;
