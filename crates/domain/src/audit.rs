//! An exported tree of runs, checked without the cluster that it ran in.
//!
//! ```text
//! seal       what a gateway signs when a root has ended, and how the signature is checked
//! open       what still goes on in a tree, which a seal waits for
//! archive    the one way in which a bundle is written as a tar file
//! bundle     the entries of that file, and what stands in those of ours
//! check      all that must hold of them
//! finding    what does not hold
//! ```
//!
//! Reading and writing are left to others: they bring entries, and bytes that are read once.

pub mod archive;
mod bundle;
mod check;
mod finding;
mod open;
mod seal;
#[cfg(test)]
mod tests;

pub use self::bundle::{
    ArtifactEntry, CHUNK_EVENTS, EntryName, FORMAT, Line, Manifest, NotAnEvent, Opening,
};
pub use self::check::{Checker, Entry};
pub use self::finding::{Finding, FindingKind, Report, SealReport, Verdict};
pub use self::open::Open;
pub use self::seal::{
    BrokenSeal, MalformedKey, PublicKey, SealKey, TreeHasher, check_seal, signed_bytes,
};

use crate::artifacts::{Named, Role, named_by};
use crate::run::Event;

/// The artifacts that `event` brings into a bundle. Images and packed directories of capsules are none of
/// them: they are large, shared by many trees, and their digests stand in the launches.
pub fn bundled_by(event: &Event) -> Vec<Named> {
    let mut named = named_by(event);
    named.retain(|named| named.role != Role::Image);
    named
}
