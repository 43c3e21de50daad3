//! Whole-system tests. Tests that require root are in [`needs_root`].

mod archive;
mod audit;
mod documentation;
mod flow;
mod history;
mod models;
mod needs_docker;
mod needs_root;
mod placement;
mod ports;
mod rerun;
mod retention;
mod rights;
mod secured;
mod simulated;
mod slots;
mod tenants;
mod why;
