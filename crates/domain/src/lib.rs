//! The rules of AOD. Pure: no clock, no randomness, no IO, no async.
//!
//! The shell brings the time and fresh ids, stores the [`event`]s that `decide` answers with, and
//! only then acts. What a run has become is [`run::Run::replay`] of its stored events.

pub mod access;
pub mod admission;
pub mod archive;
pub mod artifacts;
pub mod audit;
pub mod capsule;
pub mod contract;
pub mod dead_letter;
pub mod difference;
pub mod digest;
pub mod disk;
pub mod egress;
pub mod error_code;
pub mod event;
pub mod file;
pub mod file_name;
pub mod flow;
pub mod handoff;
pub mod id;
pub mod manifest;
pub mod node;
pub mod placement;
pub mod rerun;
pub mod retention;
pub mod run;
pub mod selection;
pub mod spending;
pub mod subject;
pub mod tenant;
mod text;
pub mod trace;
pub mod tree;
pub mod writer;
