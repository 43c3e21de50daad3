//! An exported tree of runs, checked without the cluster that it ran in.
//!
//! ```text
//! seal       what a gateway signs when a root has ended, and how the signature is checked
//! open       what still goes on in a tree, which a seal waits for
//! artifacts  which artifacts belong to an event
//! archive    the one way in which a bundle is written as a tar file
//! bundle     the entries of that file, and what stands in those of ours
//! check      all that must hold of them
//! finding    what does not hold
//! ```
//!
//! Reading and writing are left to others: they bring entries, and bytes that are read once.

pub mod archive;
mod artifacts;
mod bundle;
mod check;
mod finding;
mod open;
mod seal;
#[cfg(test)]
mod tests;

pub use self::artifacts::{Named, named_by};
pub use self::bundle::{
    ArtifactEntry, CHUNK_EVENTS, EntryName, FORMAT, Line, Manifest, NotAnEvent, Opening,
};
pub use self::check::{Checker, Entry};
pub use self::finding::{Finding, FindingKind, Report, SealReport, Verdict};
pub use self::open::Open;
pub use self::seal::{
    BrokenSeal, MalformedKey, PublicKey, SealKey, TreeHasher, check_seal, signed_bytes,
};
