//! Whole-system tests. What needs root is in [`needs_root`].

mod documentation;
mod models;
mod needs_docker;
mod needs_root;
mod ports;
mod simulated;
