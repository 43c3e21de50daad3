//! The arguments of the program. A container gives none; tests move both places.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::protocol::{CHANNEL_DIRECTORY, LISTEN_ADDRESS};

/// Where a gate finds its node and its capsule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `--channel`: the directory with the node's two sockets; [`CHANNEL_DIRECTORY`].
    pub channel: PathBuf,
    /// `--listen`: where the capsule's connections are taken; [`LISTEN_ADDRESS`].
    pub listen: SocketAddr,
}

/// Arguments that the program does not understand: mend the call.
#[derive(Debug, Error)]
pub enum OptionsError {
    /// There is no such argument.
    #[error("unknown argument {argument:?}, expected --channel DIRECTORY or --listen ADDRESS")]
    Unknown {
        /// As it was given.
        argument: OsString,
    },
    /// The argument has no value, or none that fits.
    #[error("{argument} needs a value that fits, not {value:?}")]
    Value {
        /// The argument's name.
        argument: &'static str,
        /// As it was given; none at the end of the line.
        value: Option<OsString>,
    },
}

impl Options {
    /// Reads the arguments that follow the program's name.
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
        .expect("the constant is an address, as a test checks")
}

#[cfg(test)]
mod tests;
