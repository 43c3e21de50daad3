//! `aod-chaos`: a real cluster under load, with faults drawn from a seed.
//!
//! ```text
//! aod-chaos --minutes 10             all kinds of faults, round by round
//! aod-chaos --short                  six kinds, about 90 seconds
//! aod-chaos --minutes 10 --seed 7    the same faults as before with that seed
//! ```
//!
//! Requires root: hosts are namespaces. A seed determines the faults, their targets, order and duration; their effect
//! depends on the machine. Exit codes: 0; 1 after a violation or an error; 2 for invalid arguments; 130 after a
//! signal.

mod author;
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

/// Minimum duration that tries every kind of fault, in minutes: a round takes about three.
const MINUTES_MIN: u64 = 3;

/// Invalid arguments.
const EXIT_USAGE: u8 = 2;

/// Ended by a signal. Source: the convention of shells, 128 plus the number of SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((length, seed)) = read(&arguments) else {
        say("usage: aod-chaos (--minutes N | --short) [--seed N]; at least 3 minutes");
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

/// The duration and the seed, which is drawn if it is missing.
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
    // Short enough to type.
    Some((length?, seed.unwrap_or_else(|| fastrand::u64(..1_000_000))))
}
