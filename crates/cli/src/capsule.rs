//! A capsule's directory: checked without a gateway, and packed so that equal directories are equal
//! bytes. The gateway checks again.

mod pack;
mod place;
mod validate;

pub(crate) use self::pack::pack;
pub(crate) use self::validate::{Finding, validate};
