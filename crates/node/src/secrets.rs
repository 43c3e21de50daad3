//! Secrets of the operator for capsules: their stores (a directory, a command), the secrets of one run, and their
//! redaction in everything that a node stores.

mod command;
mod directory;
mod gather;
pub(crate) mod redaction;

pub use self::command::{CommandSecrets, MalformedCommand};
pub use self::directory::DirectorySecrets;
pub(crate) use self::gather::{Gathered, gather};
