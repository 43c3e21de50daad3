//! `aod-chaos`: a cluster of real parts under load, to which faults are done from a seed.
//!
//! ```text
//! aod-chaos --minutes 10             all kinds of faults, round by round
//! aod-chaos --short                  six kinds, some 90 seconds of them
//! aod-chaos --minutes 10 --seed 7    what happened with that seed
//! ```
//!
//! Needs root: hosts are namespaces. A seed fixes which faults are done to which parts, in which order and
//! for how long; what that meets depends on the machine. Exit codes: 0, 1 where something is violated or
//! could not be done, 2 for wrong arguments, 130 after a signal.

mod calls;
mod faults;
mod history;
mod kind;
mod load;
mod orphans;
mod play;
mod report;
mod schedule;
mod takeover;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use crate::play::{Length, play};
use aod_tests::progress::say;

/// The shortest chaos in which every kind of fault is tried, in minutes: a round takes some three.
const MINUTES_MIN: u64 = 3;

/// Wrong arguments.
const EXIT_USAGE: u8 = 2;

/// Ended by a signal. Source: the custom of shells, 128 and the number of SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((length, seed)) = read(&arguments) else {
        say("usage: aod-chaos (--minutes N | --short) [--seed N]; N minutes are at least 3");
        return ExitCode::from(EXIT_USAGE);
    };
    say(&format!("seed {seed}"));
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let watcher = Arc::clone(&is_interrupted);
    runtime.spawn(async move {
        let mut interrupt = signal(SignalKind::interrupt()).expect("signals can be watched");
        let mut terminate = signal(SignalKind::terminate()).expect("signals can be watched");
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
        watcher.store(true, Ordering::Relaxed);
    });
    let played = play(&runtime, seed, length, &is_interrupted);
    let told = played.and_then(|report| {
        let Some(report) = report else {
            return Ok(ExitCode::from(EXIT_INTERRUPTED));
        };
        report.write()?;
        report.print()?;
        Ok(if report.holds() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    });
    told.unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

/// How long, and from which seed: one is drawn where none is given.
fn read(arguments: &[String]) -> Option<(Length, u64)> {
    let mut arguments = arguments.iter();
    let (mut length, mut seed) = (None, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--short" => length = Some(Length::Short),
            "--minutes" => {
                let minutes = arguments.next()?.parse().ok()?;
                length = (minutes >= MINUTES_MIN).then_some(Length::Minutes(minutes));
            }
            "--seed" => seed = Some(arguments.next()?.parse().ok()?),
            _ => return None,
        }
    }
    // Short enough to be typed.
    Some((length?, seed.unwrap_or_else(|| fastrand::u64(..1_000_000))))
}
