//! Whole systems with real Docker: the answers to hostile or clumsy capsules and callers, and the view and rights of a
//! capsule. Answers are compared completely, except for ids and times.
//!
//! Each test starts a cluster, which takes seconds: therefore a test is a table of concurrent cases. The answers are
//! in `snapshots`.

mod bases;
mod calls;
mod canary;
mod compatibility;
mod credentials;
mod endings;
mod inside;
mod languages;
mod limits;
mod many;
mod needs_root;
mod outside;
mod random_capsules;
mod redaction;
mod registry;
mod research;
mod retries;
mod secrets;
mod tasks;
mod turned;
