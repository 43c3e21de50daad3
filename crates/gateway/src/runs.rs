//! What changes runs: launches, calls of capsules, reruns, ends without a node, dead letters; and those who wait for them.

pub(crate) mod calls;
pub(crate) mod dead_letters;
pub(crate) mod launch;
pub(crate) mod rerun;
pub(crate) mod result_waiters;
pub(crate) mod stopping;
