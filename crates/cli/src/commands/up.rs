//! `aod up`: broker, gateway and node on this machine, in the foreground or in the background.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::arguments::UpArguments;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::connection::Connection;
use crate::service::data;
use crate::service::local::{Local, Lock, joining, openness, restored};
use crate::service::signals::Signals;

/// Maximum time until the background process is ready; it may have to fetch the broker's image.
const READY_PATIENCE: Duration = Duration::from_secs(180);

/// Interval between checks of readiness.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Last lines of the log that a failed start shows.
const LOG_LINES_SHOWN: usize = 20;

/// Starts everything and runs until a signal.
pub(super) async fn up(arguments: &UpArguments, console: Console) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let started = tokio::select! {
        started = Local::start(arguments) => started,
        // The started parts end with this process; the next start cleans up the rest.
        () = signals.next() => return Ok(Exit::Cancelled),
    };
    let mut local = started?;
    for notice in local.notices() {
        console.tell(notice);
    }
    console.tell(&format!(
        "ready: {} (nats-server {})",
        local.url(),
        local.server_version()
    ));
    console.tell(&format!("token: {}", local.token_file().display()));
    if !arguments.in_background {
        console.tell("press Ctrl-C to stop; commands in other terminals find this gateway");
    }
    let failure = tokio::select! {
        () = signals.next() => None,
        failure = local.watch() => Some(failure),
    };
    console.tell("stopping");
    tokio::select! {
        stopped = local.stop() => stopped?,
        () = signals.next() => return Ok(Exit::Cancelled),
    }
    console.tell("stopped");
    failure.map_or(Ok(Exit::Ok), Err)
}

/// Starts this program in the background, and waits until it is ready.
pub(super) async fn detach(arguments: &UpArguments, console: Console) -> Result<Exit, Failure> {
    openness::check(arguments)?;
    let data = data::directory(arguments.data.as_deref())?;
    data::make_directory(&data)?;
    // Reports a taken lock or a copy here, because the background process could only log it.
    let lock = Lock::take(&data).await?;
    let notice = restored::check(arguments, &data)?;
    drop(lock);
    let log = data.join("aod.log");
    let mut child = spawn(&log)?;
    let id = child.id();
    let deadline = Instant::now() + READY_PATIENCE;
    loop {
        if let Some(connection) = Connection::read(&data).filter(|connection| connection.pid == id)
        {
            let text = format!(
                "ready: {} (process {id}, log {})",
                connection.url,
                log.display()
            );
            console.tell(&text);
            let joining = joining::notice(arguments, &data)?;
            let warning = openness::warning(arguments, &connection.url);
            for notice in notice.into_iter().chain(joining).chain(warning) {
                console.tell(&notice);
            }
            return Ok(Exit::Ok);
        }
        let ended = child.try_wait().map_err(|error| {
            Failure::environment("cannot wait for the background process").because(&error)
        })?;
        if let Some(status) = ended {
            return Err(not_ready(&format!("the process ended with {status}"), &log));
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err(not_ready(
                &format!("not ready after {} s", READY_PATIENCE.as_secs()),
                &log,
            ));
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn spawn(log: &Path) -> Result<Child, Failure> {
    let failed =
        |what: &str, error: &std::io::Error| Failure::environment(what.to_owned()).because(error);
    let program = std::env::current_exe()
        .map_err(|error| failed("cannot find the path of this program", &error))?;
    let output = File::create(log).map_err(|error| data::unusable(log, &error))?;
    let errors = output
        .try_clone()
        .map_err(|error| data::unusable(log, &error))?;
    let arguments = std::env::args_os()
        .skip(1)
        .filter(|argument| argument != "--detach");
    let arguments = arguments.chain([OsString::from("--in-background")]);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    command
        .spawn()
        .map_err(|error| failed("cannot start this program in the background", &error))
}

fn not_ready(what: &str, log: &PathBuf) -> Failure {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let from = lines.len().saturating_sub(LOG_LINES_SHOWN);
    Failure::environment(format!("`aod up` did not start in the background: {what}"))
        .with_details(lines[from..].to_vec())
        .with_hint(format!("see the whole log in {}", log.display()))
}

/// Leaves the session of the terminal, so that closing the terminal does not stop the process.
pub(super) fn leave_terminal() -> Result<(), Failure> {
    rustix::process::setsid().map(drop).map_err(|error| {
        Failure::environment("cannot leave the session of the terminal").because(&error)
    })
}
