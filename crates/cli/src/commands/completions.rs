//! `aod completions`: prints the script that completes commands in a shell.

use crate::arguments::CompletionsArguments;
use crate::completion;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn completions(
    arguments: &CompletionsArguments,
    console: Console,
) -> Result<Exit, Failure> {
    let script = completion::script(&arguments.shell.to_string()).map_err(|error| {
        Failure::new(Exit::Internal, "the script cannot be created").because(&error)
    })?;
    console.print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
