//! [`aod_ports::container_runtime`] on a Docker engine.
//!
//! [`DockerRuntime`] builds, saves and loads images, starts one hardened container for each attempt
//! with the gate as its first process, watches the container until its end, and removes it. Every
//! call to the engine has a time limit. A missing answer is not a refusal: the adapter then inspects
//! the container by its name.
//!
//! The node decides which run starts, when and for how long, and is responsible for the mounted
//! directories, quota, logs and the meaning of an exit. The gate starts the command and is
//! responsible for outputs and the lease.
//!
//! Not used: automatic removal, restart policies, named and anonymous volumes, networks, `exec`, and
//! copies of files into or out of containers.

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
mod loopback;
mod names;
mod registries;
mod removal;
mod text;
mod volumes;

pub use config::{Config, RegistryUse};
pub use runtime::DockerRuntime;
