//! HTTP below the routes: connections, access, reading of requests, and errors.

pub(crate) mod access;
pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod prefer;
pub(crate) mod request;
pub(crate) mod sequence;
pub(crate) mod server;
