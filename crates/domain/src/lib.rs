//! The domain rules of AOD. Pure: no clock, no randomness, no IO, no async.
//!
//! Callers pass the time and new ids, store the [`event`]s that `decide` returns, and only then act.
//! [`run::Run::replay`] computes a run from its stored events.

pub mod access;
pub mod admission;
pub mod archive;
pub mod artifacts;
pub mod audit;
pub mod capsule;
pub mod chain;
pub mod contract;
pub mod dead_letter;
pub mod difference;
pub mod digest;
pub mod disk;
pub mod dockerfile;
pub mod egress;
pub mod error_code;
pub mod event;
pub mod file;
pub mod file_name;
pub mod flow;
pub mod grant;
pub mod handoff;
pub mod id;
mod image;
pub mod json;
pub mod launch;
pub mod lineage;
pub mod manifest;
pub mod name;
pub mod node;
pub mod peers;
pub mod placement;
pub mod rerun;
pub mod resources;
pub mod retention;
pub mod rule;
pub mod run;
pub mod selection;
pub mod spending;
pub mod subject;
pub mod task;
pub mod tenant;
mod text;
pub mod trace;
pub mod tree;
pub mod writer;
pub mod yaml;
