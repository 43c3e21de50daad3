//! The adapter against the real engine at `/var/run/docker.sock`: the rights of containers, their ends,
//! and lost answers of the engine.
//!
//! Each test has its own cluster name and removes everything with this label, also when it fails. The
//! images are built from a static busybox; no registry is needed.

mod bases;
mod commands;
mod conformance;
mod daemon;
mod engine_proxy;
mod faults;
mod fixture;
mod full_disk;
mod hardening;
mod hostile;
mod images;
mod lifecycle;
mod random_images;
