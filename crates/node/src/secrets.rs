//! Secrets that the operator keeps, in a directory or behind a command, and those of one run.

mod command;
mod directory;
mod gather;

pub use self::command::{CommandSecrets, MalformedCommand};
pub use self::directory::DirectorySecrets;
pub(crate) use self::gather::{Gathered, gather};
