//! Signals and reaps the processes of the container.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgid, getpid, kill_process, kill_process_group, wait,
};

use crate::protocol::Exited;

/// Children reaped in one round, so that endless orphans cannot keep the gate from its other work.
const REAPED_PER_ROUND_MAX: usize = 256;

/// The result of a round of reaping.
#[derive(Debug, Default)]
pub(crate) struct Reaped {
    /// The ends of the main processes that were reaped.
    pub(crate) ended: Vec<(Pid, Exited)>,
    /// No child is left, living or dead.
    pub(crate) none_left: bool,
    /// The round has reached its bound: another round is necessary.
    pub(crate) more: bool,
}

/// Reaps the children that have ended, main processes and orphans of the container.
pub(crate) fn reap(is_main: impl Fn(Pid) -> bool) -> Reaped {
    let mut reaped = Reaped {
        more: true,
        ..Reaped::default()
    };
    for _ in 0..REAPED_PER_ROUND_MAX {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if is_main(pid) => reaped.ended.push((pid, exited(status))),
            Ok(Some(_)) | Err(Errno::INTR) => (),
            Ok(None) => {
                reaped.more = false;
                break;
            }
            // The only other error: no children.
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

/// Sends `signal` to the main process and its group. Other process groups do not receive it, as on a
/// terminal.
pub(crate) fn signal_main(main: Pid, signal: Signal) {
    // Errors: the processes are already dead.
    let _ = kill_process_group(main, signal);
    if getpgid(Some(main)).is_ok_and(|group| group != main) {
        let _ = kill_process(main, signal);
    }
}

/// Kills the process group of a main process that has ended.
pub(crate) fn kill_group(main: Pid) {
    // The only error: no process is left.
    let _ = kill_process_group(main, Signal::KILL);
}

/// Kills all processes that main processes have left: as PID 1 all other processes of the container, else (in tests)
/// their process groups.
///
/// One call misses no process: the kernel locks its list of processes, and undoes a fork that meets the
/// signal.
pub(crate) fn kill_all(mains: impl IntoIterator<Item = Pid>) {
    if getpid() == Pid::INIT {
        // Group 1 becomes -1 for kill(2): every process except the caller; PID 1 sees only its own container.
        kill_group(Pid::INIT);
    } else {
        mains.into_iter().for_each(kill_group);
    }
}
