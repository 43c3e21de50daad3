//! The adapter against the real engine at `/var/run/docker.sock`: what containers can and cannot do,
//! how they end, and what happens when the engine's answers get lost.
//!
//! Every test has a cluster name of its own and removes all that carries it, also when it fails. The
//! images are made on the spot of a static busybox; no registry is needed.

mod commands;
mod conformance;
mod engine_proxy;
mod faults;
mod fixture;
mod hardening;
mod hostile;
mod images;
mod lifecycle;
