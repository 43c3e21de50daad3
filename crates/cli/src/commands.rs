//! The subcommands of `aod`, one file each.

mod audit;
mod backup;
mod capsule;
mod certs;
mod completions;
mod credentials;
mod dead_letters;
mod doctor;
mod down;
mod events;
mod history;
mod inputs;
mod logs;
mod nodes;
mod progress;
mod rerun;
mod results;
mod retention;
mod rules;
mod run;
mod runs;
mod services;
mod task;
mod tokens;
mod up;

pub(crate) use self::capsule::Inspection;
use crate::arguments::{Arguments, Command};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

/// Prepares the process before it has threads.
pub(crate) fn before_threads(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Up(arguments) if arguments.in_background => up::leave_terminal(),
        _ => Ok(()),
    }
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments, console: Console) -> Result<Exit, Failure> {
    match arguments.command {
        Command::Up(up) if up.detach => up::detach(&up, console).await,
        Command::Up(up) => up::up(&up, console).await,
        Command::Down(down) => down::down(&down, console).await,
        Command::Backup(arguments) => backup::backup(&arguments, console).await,
        Command::Gateway(gateway) => services::gateway(&gateway).await,
        Command::Node(node) => services::node(&node).await,
        Command::Credentials(directory) => credentials::credentials(&directory, console),
        Command::Certs(arguments) => certs::certs(&arguments, console),
        Command::Run(run) => run::run(run, console).await,
        Command::Runs(command) => runs::runs(command, console).await,
        Command::Events(command) => events::events(command, console).await,
        Command::DeadLetters(command) => dead_letters::dead_letters(command, console).await,
        Command::Audit(command) => audit::audit(command, console).await,
        Command::Capsule(command) => capsule::capsule(command, console).await,
        Command::Task(command) => task::task(command, console).await,
        Command::Rules(command) => rules::rules(command, console).await,
        Command::Tokens(command) => tokens::tokens(command, console).await,
        Command::Retention(command) => retention::retention(command, console).await,
        Command::Hold(command) => retention::hold(command, console).await,
        Command::Gc(arguments) => retention::collect(&arguments, console).await,
        Command::Nodes(command) => nodes::nodes(command, console).await,
        Command::Doctor(doctor) => doctor::doctor(&doctor, console).await,
        Command::Completions(completions) => completions::completions(&completions, console),
    }
}
