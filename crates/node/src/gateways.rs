//! Requests to the gateways: a `speaker` makes the requests of one run, the `client` sends each to any gateway that is
//! present, over the connections of `http`.

pub(crate) mod client;
pub(crate) mod http;
pub(crate) mod speaker;
