//! The gate as a program: started as in a container, with a node that each test plays itself.
//!
//! What only PID 1 can do is tested in PID namespaces of the tests' own ([`pid_1`]).

mod beginning;
mod commands;
mod forwarding;
mod leases;
mod node;
mod outputs;
mod pid_1;
mod signals;
