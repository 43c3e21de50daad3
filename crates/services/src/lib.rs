//! What gateways and nodes share above the ports.
//!
//! [`writer::Writer`] is the one loop of load, decide, append. [`runs`], [`spending`] and [`retention`] use it for one
//! kind of chain each; [`pages`] reads the log; [`disk`] and [`program`] are about this host and this process.

pub mod connections;
pub mod disk;
pub mod error;
pub mod pages;
pub mod program;
pub mod retention;
pub mod runs;
pub mod spending;
pub mod writer;
