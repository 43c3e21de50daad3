//! The program `aod`: connects the adapters with the gateway and the node, and implements the commands.
//!
//! Gateway and node decide about runs; `aod_kit` checks and packs directories of capsules. This crate
//! handles flags, files, processes and the terminal. Data goes to stdout, everything else to stderr.
//!
//! ```text
//! arguments   flags and environment               exit, failure   exit codes and errors
//! commands    one file per command                client          HTTP to a gateway
//! service     gateway, node and broker as processes               text   tables, trees, problems
//! completion  candidates for shells
//! ```

pub mod arguments;
pub mod exit;
pub mod failure;
pub mod service;

mod client;
mod commands;
mod completion;
mod console;
mod logging;
mod text;

use std::process::ExitCode;

use aod_services::program;
use clap::Parser as _;

use crate::arguments::Arguments;
use crate::console::Console;
use crate::exit::Exit;

/// Parses the command line, runs the command, and returns its exit code.
pub fn main() -> ExitCode {
    completion::answer();
    let arguments = Arguments::parse();
    let console = Console::of_this_process(arguments.format);
    // The only provider of TLS cryptography; the call fails only if it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exit = match run(arguments, console) {
        Ok(exit) => exit,
        Err(failure) => {
            console.tell(&failure.render());
            failure.exit
        }
    };
    ExitCode::from(exit.code())
}

fn run(arguments: Arguments, console: Console) -> Result<Exit, failure::Failure> {
    commands::before_threads(&arguments.command)?;
    logging::begin(&arguments)?;
    let runtime = program::runtime().map_err(|error| {
        failure::Failure::new(Exit::Environment, "threads cannot be started").because(&error)
    })?;
    let ended = runtime.block_on(commands::run(arguments, console));
    // A pending read from the terminal must not delay the exit.
    runtime.shutdown_background();
    ended
}
