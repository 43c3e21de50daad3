//! The registry over a real store, by HTTP.

mod bench;
mod refusals;
mod skopeo;
mod transfers;
