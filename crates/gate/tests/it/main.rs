//! The gate as a program, started as in a container; each test acts as its node.
//!
//! [`pid_1`] tests the behavior of PID 1 in its own PID namespaces.

mod beginning;
mod commands;
mod forwarding;
mod holding;
mod leases;
mod node;
mod outputs;
mod pid_1;
mod signals;
