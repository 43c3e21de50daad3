//! Tests with several hosts, each with its own Docker: they make network namespaces, which needs
//! root.

mod chain;
mod failures;
mod handoff;
mod hosts;
mod images;
mod locality;
mod outside;
mod product;
mod rolling;
