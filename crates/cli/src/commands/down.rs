//! `aod down`: stops a running `aod up`.

use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::arguments::DownArguments;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::data;
use crate::service::local::{Holder, Lock, wait_until_free};

/// Maximum time to stop: open answers, the broker and containers have 10 to 15 s each.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn down(arguments: &DownArguments, console: Console) -> Result<Exit, Failure> {
    let data = data::directory(arguments.data.as_deref())?;
    let id = match Lock::holder(&data)? {
        Holder::Nobody => {
            console.tell(&format!(
                "no `aod up` runs with the data directory {}",
                data.display()
            ));
            return Ok(Exit::Ok);
        }
        Holder::Process(id) => id,
    };
    let pid = id
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| {
        Failure::environment(format!(
            "cannot find the process id of the `aod up` with the data directory {}",
            data.display()
        ))
        .with_hint("if `aod up` is starting, retry in a few seconds")
    })?;
    rustix::process::kill_process(pid, Signal::TERM).map_err(|error| {
        Failure::environment(format!("cannot send SIGTERM to process {pid:?}")).because(&error)
    })?;
    if wait_until_free(&data, STOP_PATIENCE).await? {
        console.tell(&format!("stopped; the data stays in {}", data.display()));
        return Ok(Exit::Ok);
    }
    let id = pid.as_raw_nonzero();
    Err(Failure::environment(format!(
        "process {id} still runs {} s after SIGTERM",
        STOP_PATIENCE.as_secs()
    ))
    .with_hint(format!(
        "see {}/aod.log; `kill -9 {id}` kills the process, and the next `aod up` cleans up",
        data.display()
    )))
}
