//! Gateways on a real broker, with a scripted node instead of containers.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod calls;
mod capsules;
mod dead_letters;
mod endings;
mod harness;
mod history;
mod lists;
mod log;
mod node;
mod openapi;
mod refusals;
mod runs;
mod streams;
mod tenants;
