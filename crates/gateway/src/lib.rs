//! A gateway: HTTP for people and capsules. It checks, decides, appends events, waits for results
//! and keeps lists that it can throw away. It holds no state that another gateway could not rebuild,
//! and never touches a container; adapters of its ports are wired by the program that starts it.

mod admission;
mod background;
mod catalogue;
mod collecting;
mod config;
mod context;
mod dead_letters;
mod disk_room;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gateway;
mod gone;
mod history;
mod http;
mod launch;
mod log_room;
mod metrics;
mod openapi;
mod queues;
mod read_model;
mod reading;
mod registration;
mod rerun;
mod routes;
mod selecting;
mod stopping;
mod tokens;
mod views;
mod waiters;
mod waiting;

pub use self::config::{Access, Config, LISTS_DELAY, Ports, Token};
pub use self::gateway::{Gateway, StartError};
pub use self::http::tls::{Tls, TlsError};
pub use self::openapi::document as openapi_document;
pub use self::read_model::ReadModelError;
