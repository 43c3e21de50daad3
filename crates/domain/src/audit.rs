//! Verifies an exported tree of runs without its cluster.
//!
//! ```text
//! seal       the signature of a gateway over a tree, and its check
//! open       unfinished parts of a tree, which a seal waits for
//! archive    the exact tar format of a bundle
//! bundle     the entries of a bundle, and the contents of AOD's own entries
//! check      all rules that entries must follow
//! finding    violations of these rules
//! ```
//!
//! Reading and writing are up to the callers: they pass entries, and bytes that are read once.

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

/// The artifacts that `event` adds to a bundle. Images and packed directories of capsules are excluded: they are large,
/// shared by many trees, and launches contain their digests.
pub fn bundled_by(event: &Event) -> Vec<Named> {
    let mut named = named_by(event);
    named.retain(|named| named.role != Role::Image);
    named
}
