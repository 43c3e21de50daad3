//! SIGINT and SIGTERM: both stop a program.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The stream of both signals.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Handles the signals from now on; they no longer end the process by themselves.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::environment("cannot listen for SIGINT and SIGTERM").because(&error)
            })
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
        }
    }
}
