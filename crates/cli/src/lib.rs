//! The program `aod`: wires the adapters to the gateway and the node, and gives people their commands.
//!
//! Decisions about runs are left to the gateway and the nodes; here are flags, files, processes and
//! what stands on the screen. Data goes to stdout, all else to stderr.
//!
//! ```text
//! arguments   flags and environment               exit, failure   how a command ends
//! commands    one file a command                  client          HTTP to a gateway
//! service     gateway, node and broker as processes               text   tables, trees, problems
//! capsule     capsules' directories: checked, packed, with their cases and calls
//! ```

pub mod arguments;
pub mod exit;
pub mod failure;
pub mod service;

mod capsule;
mod client;
mod commands;
mod console;
mod logging;
mod text;

use std::process::ExitCode;

use aod_ports::program;
use clap::Parser as _;

use crate::arguments::Arguments;
use crate::console::Console;
use crate::exit::Exit;

/// Reads the command line, does what it says, and tells how that ended.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let console = Console::of_this_process(arguments.output);
    // The one source of TLS cryptography; that it is set already is as good.
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
    // What is still read from a terminal must not hold the end up.
    runtime.shutdown_background();
    ended
}
