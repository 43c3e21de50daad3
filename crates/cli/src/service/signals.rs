//! Signals that stop a program: SIGINT and SIGTERM; also SIGHUP, unless the program only waits for a gateway.

use std::fs;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The stream of these signals.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal was closed. None if that does not stop the program.
    hangup: Option<Signal>,
}

impl Signals {
    /// Handles the signals from now on; they no longer end the process by themselves. A program that `nohup` started
    /// goes on when its terminal is closed.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut signals = Self::listen_except_hangup()?;
        if !is_ignored(SignalKind::hangup()) {
            signals.hangup = Some(stream(SignalKind::hangup())?);
        }
        Ok(signals)
    }

    /// As [`Signals::listen`], but SIGHUP ends the process: for commands that wait for a run, which continues when the
    /// terminal is closed.
    pub(crate) fn listen_except_hangup() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: stream(SignalKind::interrupt())?,
            terminate: stream(SignalKind::terminate())?,
            hangup: None,
        })
    }

    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
            _ = hangup => (),
        }
    }
}

fn stream(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::environment("cannot listen for signals").because(&error))
}

/// Whether this process ignores a signal.
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_ignored_in(&status, kind)
}

/// As [`is_ignored`], for the process with this `/proc/PID/status`.
fn is_ignored_in(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn closed_terminal_stops_program_that_listens() {
        let mut signals = Signals::listen().unwrap();
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::HUP).unwrap();
        signals.next().await;
    }

    #[test]
    fn program_knows_that_it_ignores_closed_terminal() {
        let status = |before: &str| {
            let script = format!("{before} cat /proc/self/status");
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let ignored = status("trap '' HUP;");
        assert!(is_ignored_in(&ignored, SignalKind::hangup()), "{ignored}");
        assert!(
            !is_ignored_in(&ignored, SignalKind::terminate()),
            "{ignored}"
        );
    }
}
