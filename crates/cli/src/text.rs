//! Terminal output, as pure functions of responses of the gateway.

pub(crate) mod audit;
pub(crate) mod capsule;
pub(crate) mod dead_letter;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod log;
pub(crate) mod picture;
pub(crate) mod problem;
pub(crate) mod retention;
pub(crate) mod rule;
pub(crate) mod run;
pub(crate) mod table;
pub(crate) mod token;
pub(crate) mod tree;
pub(crate) mod units;
mod visible;

pub(crate) use visible::visible;

#[cfg(test)]
mod tests;
