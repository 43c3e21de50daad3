//! Tests with several hosts, each with its own Docker: they create network namespaces, which requires root.

mod chain;
mod failures;
mod handoff;
mod hosts;
mod images;
mod locality;
mod outside;
mod product;
mod rolling;
