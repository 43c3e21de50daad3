//! The registry over a real store, by HTTP; other registries and layouts, with real programs.

mod bench;
mod garbage;
mod layouts;
mod refusals;
mod remote;
mod skopeo;
mod transfers;
