//! Signals to the processes of the container, and their burial.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgid, getpid, kill_process, kill_process_group, wait,
};

use crate::protocol::Exited;

/// Children buried in one go, so that a container that makes orphans without end cannot keep the
/// gate from its other work.
const REAPED_PER_ROUND_MAX: usize = 256;

/// What burying has shown.
#[derive(Debug, Default)]
pub(crate) struct Reaped {
    /// How the main process ended, if it was among them.
    pub(crate) main: Option<Exited>,
    /// There is no child left, living or dead.
    pub(crate) none_left: bool,
    /// The bound of one round was reached: come again.
    pub(crate) more: bool,
}

/// Takes the exit status of every child that has ended, orphans of the container among them.
pub(crate) fn reap(main: Option<Pid>) -> Reaped {
    let mut reaped = Reaped {
        more: true,
        ..Reaped::default()
    };
    for _ in 0..REAPED_PER_ROUND_MAX {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if Some(pid) == main => reaped.main = Some(exited(status)),
            Ok(Some(_)) | Err(Errno::INTR) => (),
            Ok(None) => {
                reaped.more = false;
                break;
            }
            // The only other error: there are no children.
            Err(_) => {
                reaped.more = false;
                reaped.none_left = true;
                break;
            }
        }
    }
    reaped
}

fn exited(status: WaitStatus) -> Exited {
    Exited {
        code: status.exit_status(),
        signal: status.terminating_signal(),
        ..Exited::default()
    }
}

/// Sends `signal` to the main process and its group. Processes that went into other groups keep out
/// of it, as they would on a terminal.
pub(crate) fn signal_main(main: Pid, signal: Signal) {
    // Errors: they are dead already, which is no news here.
    let _ = kill_process_group(main, signal);
    if getpgid(Some(main)).is_ok_and(|group| group != main) {
        let _ = kill_process(main, signal);
    }
}

/// Kills everything that the main process has left: as PID 1 all other processes of the container,
/// else (in tests) its process group.
///
/// One call misses nobody: the kernel holds its list of processes still, and a fork that meets the
/// signal is undone.
pub(crate) fn kill_all(main: Pid) {
    // As a group, 1 is -1 to kill(2): every process but the caller, and PID 1 sees its own only.
    let group = if getpid() == Pid::INIT {
        Pid::INIT
    } else {
        main
    };
    // The only error: nobody is left.
    let _ = kill_process_group(group, Signal::KILL);
}
