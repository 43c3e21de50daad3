//! The kit for authors of capsules: what `aod capsule` does with directories, without a gateway. Commands, arguments
//! and text are in the crate `cli`.
//!
//! ```text
//! template     the files of a new capsule
//! validate     problems in directories and between capsules, by the rules of the gateway; prices of models
//! source       a valid directory, and the capsules that it may call
//! graph        the permitted calls between capsules
//! contents     the entries of a directory that belong to its package, and what is left out by the rules of `ignore`
//! pack         a directory as a package: equal directories give equal bytes
//! task         the capsule of a task
//! cases        the test cases of a capsule; `expectation` compares their results
//! stand_in     canned answers in place of capsules and models
//! wheel        the Python SDK, which `build.rs` builds and `pack` adds
//! ```

pub mod cases;
pub mod expectation;
pub mod graph;
pub mod stand_in;
pub mod template;

mod contents;
mod error;
mod ignore;
mod pack;
mod place;
mod source;
mod task;
mod validate;
mod wheel;

pub use self::error::Error;
pub use self::pack::{Package, pack};
pub use self::source::{Family, Source};
pub use self::task::TaskSource;
pub use self::validate::{Finding, Severity, refuse, relations, unpriced, validate};
