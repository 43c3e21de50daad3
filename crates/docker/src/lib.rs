//! Containers of capsules on a Docker engine, as [`aod_ports::container_runtime`] wants them.
//!
//! [`DockerRuntime`] builds, saves and loads images, starts one hardened container an attempt with
//! the gate as its first process, watches it to its very end and removes it. Every call to the
//! engine has a time limit, and an answer that did not come is never taken for a refusal: the
//! engine is asked by the container's name what really happened.
//!
//! It leaves to the node: which run, when and how long; the directories that are bound; quota and
//! logs; and what an exit means. It leaves to the gate: starting the command, outputs, the lease.
//!
//! Deliberately absent: automatic removal, restart policies, named and anonymous volumes, networks,
//! `exec`, and copying files into or out of containers.

pub mod config;
pub mod exchange;
pub mod runtime;
pub mod service;

mod breaker;
mod coalesce;
mod container;
mod creation;
mod description;
mod engine;
mod gate;
mod image;
mod launch;
mod names;
mod registries;
mod removal;
mod text;

pub use config::Config;
pub use runtime::DockerRuntime;
