//! A capsule's directory: checked without a gateway, and packed so that equal directories are equal
//! bytes. The gateway checks again.

pub(crate) mod cases;
pub(crate) mod expectation;
pub(crate) mod graph;
mod pack;
mod place;
mod source;
mod validate;
pub(crate) mod wheel;

pub(crate) use self::pack::pack;
pub(crate) use self::source::{Family, Source};
pub(crate) use self::validate::{Finding, Severity, refuse, relations, unpriced, validate};
