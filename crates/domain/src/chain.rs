//! Chains: the events of one thing in the log, guarded together.
//!
//! A run, the spending of a tree, a dead letter, all tokens, all rules, all retention policies and holds are one chain
//! each. Every event names the hash of the event before it. A writer stores an event only if the chain still ends with the
//! last event that the writer has read, so each stored decision was made on the whole state.

use std::error::Error;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::digest::Digest;
use crate::event::Recorded;
use crate::subject::Subject;

/// The state of one thing, computed from all its events.
pub trait Chain {
    type Event: Serialize + DeserializeOwned + Send;
    /// Why an event cannot follow.
    type Broken: Error + Send + Sync + 'static;

    /// Maximum decisions for one command: each but the last means that another writer was faster.
    const DECISIONS_MAX: u32 = 16;

    /// The thing as errors name it.
    fn name(&self) -> String;

    /// The subjects of its events, with wildcards.
    fn filter(&self) -> String;

    /// The subject of its next event.
    fn subject(&self, event: &Self::Event) -> Subject;

    /// The `subject` field of its next event.
    fn about(&self, event: &Self::Event) -> String;

    /// Sequence and hash of its last event; none without events.
    fn last(&self) -> Option<(u64, Digest)>;

    /// Applies the next event.
    ///
    /// # Errors
    /// The event cannot follow from those before it.
    fn apply(&mut self, recorded: Recorded<Self::Event>) -> Result<(), Self::Broken>;
}
