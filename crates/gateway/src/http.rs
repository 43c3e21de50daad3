//! HTTP below the routes: connections, who asks, what a request says, and how it is refused.

pub(crate) mod access;
pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod parameters;
pub(crate) mod prefer;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod tls;
