//! Capsules: their registration, and the catalogue of the registered ones.

pub(crate) mod catalogue;
pub(crate) mod registration;
