//! The records of an attempt for people: its output (`logs`), its phases and refusals (`notes`). No decision depends on
//! them.

pub(crate) mod logs;
pub(crate) mod notes;
