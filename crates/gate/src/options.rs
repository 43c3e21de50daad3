//! The arguments of the program. Containers pass none; tests set both.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::protocol::{CHANNEL_DIRECTORY, LISTEN_ADDRESS};

/// The addresses of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `--channel`: the directory with the node's two sockets; [`CHANNEL_DIRECTORY`].
    pub channel: PathBuf,
    /// `--listen`: the address for the capsule's connections; [`LISTEN_ADDRESS`].
    pub listen: SocketAddr,
}

/// Invalid arguments.
#[derive(Debug, Error)]
pub enum OptionsError {
    /// An unknown argument.
    #[error("unknown argument {argument:?}, expected --channel DIRECTORY or --listen ADDRESS")]
    Unknown {
        /// The argument as given.
        argument: OsString,
    },
    /// The value is missing or invalid.
    #[error("{argument} needs a valid value, not {value:?}")]
    Value {
        /// The argument's name.
        argument: &'static str,
        /// The value as given; none if it is missing.
        value: Option<OsString>,
    },
}

impl Options {
    /// Parses the arguments after the program's name.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, OptionsError> {
        let mut options = Self {
            channel: CHANNEL_DIRECTORY.into(),
            listen: default_listen_address(),
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--channel") => {
                    let value = arguments.next();
                    let value = value.ok_or(OptionsError::Value {
                        argument: "--channel",
                        value: None,
                    })?;
                    options.channel = value.into();
                }
                Some("--listen") => {
                    let value = arguments.next();
                    let address = value
                        .as_ref()
                        .and_then(|text| text.to_str())
                        .map(str::parse::<SocketAddr>);
                    let Some(Ok(address)) = address else {
                        return Err(OptionsError::Value {
                            argument: "--listen",
                            value,
                        });
                    };
                    options.listen = address;
                }
                _ => return Err(OptionsError::Unknown { argument }),
            }
        }
        Ok(options)
    }
}

fn default_listen_address() -> SocketAddr {
    LISTEN_ADDRESS
        .parse()
        .expect("the constant is a valid address")
}

#[cfg(test)]
mod tests;
