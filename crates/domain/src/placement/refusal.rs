//! Why a node cannot run a run.

use std::fmt;

use super::{Name, Requirement, cpus, gibibytes};
use crate::subject::Pool;

/// A requirement that a node does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoPool(Pool),
    Attribute {
        wanted: Requirement,
        /// The node's value, if the node has the attribute.
        found: Option<String>,
    },
    Devices {
        name: Name,
        wanted: u16,
        found: usize,
    },
    Processors {
        wanted_millis: u32,
        found_millis: u32,
    },
    Memory {
        wanted_bytes: u64,
        found_bytes: u64,
    },
}

impl fmt::Display for Refusal {
    /// What the node has, to follow "has".
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPool(pool) => write!(formatter, "no pool {pool}"),
            Self::Attribute {
                wanted,
                found: None,
            } => write!(formatter, "no {wanted}"),
            Self::Attribute {
                wanted,
                found: Some(found),
            } => write!(formatter, "{}={found} not {wanted}", wanted.name()),
            Self::Devices {
                name,
                wanted,
                found,
            } => write!(formatter, "{found} of {wanted} {name}"),
            Self::Processors {
                wanted_millis,
                found_millis,
            } => {
                let (found, wanted) = (cpus(*found_millis), cpus(*wanted_millis));
                write!(formatter, "{found} of {wanted} processors")
            }
            Self::Memory {
                wanted_bytes,
                found_bytes,
            } => {
                let (found, wanted) = (gibibytes(*found_bytes), gibibytes(*wanted_bytes));
                write!(formatter, "{found} of {wanted} memory")
            }
        }
    }
}
