//! `aod completions`: for a shell to read.

use clap::CommandFactory as _;

use crate::arguments::{Arguments, CompletionsArguments};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn completions(arguments: &CompletionsArguments) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "aod",
        &mut script,
    );
    Console::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
