//! Whole systems with real Docker: what hostile or clumsy capsules and callers are answered, and
//! what a capsule can see and do. Each answer is compared whole, ids and times left out.
//!
//! A cluster takes seconds to start, and each of these tests starts one: so a test is a table of
//! cases, which run at the same time. The answers are in `snapshots`.

mod calls;
mod canary;
mod credentials;
mod endings;
mod inside;
mod languages;
mod limits;
mod many;
mod needs_root;
mod originals;
mod outside;
mod redaction;
mod registry;
mod research;
mod retries;
mod secrets;
mod turned;
