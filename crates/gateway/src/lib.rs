//! The gateway: the HTTP API for people, nodes and capsules. It validates requests, decides, appends events, waits for
//! results, and keeps a read model that it can rebuild. It holds no state that another gateway could not rebuild, and
//! never touches a container. The program that starts it connects the adapters.

mod admission;
mod background;
mod capsules;
mod config;
mod context;
mod error;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gateway;
mod http;
mod metrics;
mod openapi;
mod parameters;
mod read_model;
mod reading;
mod routes;
mod runs;
mod streams;
mod tls;
mod tokens;

pub use self::config::{Access, Config, LISTS_DELAY, Ports, Token};
pub use self::gateway::{Gateway, StartError};
pub use self::openapi::document as openapi_document;
pub use self::read_model::ReadModelError;
pub use self::routes::{ROUTES, Route};
pub use self::tls::{Tls, TlsError};
