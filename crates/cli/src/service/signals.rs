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
        if is_ignored(SignalKind::hangup()) {
            Self::listen_except_hangup()
        } else {
            Self::listen_to_all()
        }
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

    fn listen_to_all() -> Result<Self, Failure> {
        Ok(Self {
            hangup: Some(stream(SignalKind::hangup())?),
            ..Self::listen_except_hangup()?
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
            // Shell and kernel may both send it: only the first counts.
            _ = hangup => self.hangup = None,
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
        let mut signals = Signals::listen_to_all().unwrap();
        let send = |signal| rustix::process::kill_process(rustix::process::getpid(), signal);
        send(rustix::process::Signal::HUP).unwrap();
        signals.next().await;
        // A second one does not end the process, and is no second request to stop.
        assert!(signals.hangup.is_none());
        send(rustix::process::Signal::HUP).unwrap();
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
