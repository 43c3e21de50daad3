//! The processes of a gate that holds: the node starts them one by one, or several at the same time.

use rustix::process::{Pid, Signal};

use crate::command;
use crate::link::Link;
use crate::memory;
use crate::outputs::{Outputs, Writer, Writers};
use crate::processes;
use crate::protocol::{Exited, FromGate, Process, ProcessExited};
use crate::readiness::Interests;

/// Bytes that the gate reads of an output after the end of its process. A process with a session of its own may write on.
/// Source: the largest pipe of users, `pipe(7)`: 1 MiB.
const REST_BYTES_MAX: usize = 1 << 20;

/// The processes that run, and those that are queued.
#[derive(Debug)]
pub(crate) struct Held {
    env: Vec<(String, String)>,
    processes: Vec<Running>,
    /// They start after the gate has killed all other processes of the container.
    queued: Vec<Process>,
    /// No process runs any more; the gate kills and reaps all others.
    is_clearing: bool,
    /// The node starts no more.
    is_finishing: bool,
}

/// A process until its end is reported.
#[derive(Debug)]
struct Running {
    number: u32,
    main: Pid,
    outputs: Outputs,
    /// Of the container, before it started.
    killed_for_memory: u64,
    /// None while it runs.
    exited: Option<Exited>,
    /// Bytes of output that the gate still reads after the end.
    rest_bytes: usize,
}

impl Held {
    /// No process, and the environment of each.
    pub(crate) fn new(env: Vec<(String, String)>) -> Self {
        Self {
            env,
            processes: Vec::new(),
            queued: Vec::new(),
            is_clearing: false,
            is_finishing: false,
        }
    }

    /// Starts a process, or reports why it cannot start.
    pub(crate) fn start(&mut self, process: Process, link: &mut Link) {
        if self.is_finishing {
            return;
        }
        if self.is_clearing {
            self.queued.push(process);
            return;
        }
        let env: Vec<_> = self.env.iter().cloned().chain(process.env).collect();
        let killed_for_memory = memory::killed();
        match command::start(&process.argv, &env, process.stdin.as_deref()) {
            Ok(started) => self.processes.push(Running {
                number: process.number,
                main: started.main,
                outputs: started.outputs,
                killed_for_memory,
                exited: None,
                rest_bytes: REST_BYTES_MAX,
            }),
            Err(error) => {
                let exited = Exited {
                    code: Some(error.exit_code().into()),
                    error: Some(error.text()),
                    ..Exited::default()
                };
                report(process.number, exited, link);
            }
        }
    }

    /// Starts no more processes.
    pub(crate) fn finish(&mut self) {
        self.is_finishing = true;
        self.queued.clear();
    }

    /// Passes a signal to all processes.
    pub(crate) fn signal_all(&self, signal: Signal) {
        self.running()
            .for_each(|main| processes::signal_main(main, signal));
    }

    /// Passes a signal to the process with this number. A queued process does not start any more.
    pub(crate) fn signal(&mut self, number: u32, signal: Signal, link: &mut Link) {
        let queued = self.queued.iter().position(|one| one.number == number);
        if let Some(index) = queued {
            self.queued.remove(index);
            let exited = Exited {
                signal: Some(signal.as_raw()),
                ..Exited::default()
            };
            report(number, exited, link);
        }
        let mut running = self.processes.iter();
        let running = running.find(|one| one.number == number && one.exited.is_none());
        if let Some(process) = running {
            processes::signal_main(process.main, signal);
        }
    }

    /// Whether this is the main process of one of them.
    pub(crate) fn is_main(&self, pid: Pid) -> bool {
        self.running().any(|main| main == pid)
    }

    /// The main processes that run.
    pub(crate) fn running(&self) -> impl Iterator<Item = Pid> {
        let running = self.processes.iter().filter(|one| one.exited.is_none());
        running.map(|process| process.main)
    }

    /// Records the end of a main process, and kills its group.
    pub(crate) fn ended(&mut self, main: Pid, mut exited: Exited) {
        let process = self
            .processes
            .iter_mut()
            .find(|one| one.main == main && one.exited.is_none());
        let Some(process) = process else { return };
        exited.out_of_memory = memory::killed() > process.killed_for_memory;
        process.exited = Some(exited);
        processes::kill_group(main);
        let none_runs = self.running().next().is_none();
        self.is_clearing = none_runs;
    }

    /// Whether the gate must kill and reap all processes, because none of the node's runs.
    pub(crate) const fn is_clearing(&self) -> bool {
        self.is_clearing
    }

    /// Kills all processes.
    pub(crate) fn kill_all(&self) {
        processes::kill_all(self.processes.iter().map(|process| process.main));
    }

    /// All processes of the container are reaped.
    pub(crate) fn cleared(&mut self) {
        self.is_clearing = false;
    }

    /// Whether nothing runs or waits, and no more follows.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finishing && self.processes.is_empty() && !self.is_clearing
    }

    /// Adds the open outputs.
    pub(crate) fn add_interests<'fd>(&'fd self, interests: &mut Interests<'fd>) {
        for process in self.processes.iter().filter(|one| one.exited.is_none()) {
            process.outputs.add_interests(interests);
        }
    }

    /// Reads each output once.
    pub(crate) fn pump(&mut self, link: &mut Link, scratch: &mut [u8]) {
        for process in &mut self.processes {
            let writer = Writer::Process(process.number);
            process.outputs.pump(writer, link, Writers::Living, scratch);
        }
    }

    /// Reports the processes that have ended, and starts those that waited for that.
    pub(crate) fn advance(&mut self, link: &mut Link, scratch: &mut [u8]) {
        if self.is_clearing {
            return;
        }
        self.processes
            .retain_mut(|process| !process.is_reported(link, scratch));
        if self.processes.is_empty() {
            for process in std::mem::take(&mut self.queued) {
                self.start(process, link);
            }
        }
    }
}

impl Running {
    /// Sends the rest of the output and the end of a process that has ended. False until all of it has been sent.
    fn is_reported(&mut self, link: &mut Link, scratch: &mut [u8]) -> bool {
        let Some(exited) = &self.exited else {
            return false;
        };
        while !self.outputs.are_complete() && link.has_room() {
            let writer = Writer::Process(self.number);
            self.outputs.pump(writer, link, Writers::Dead, scratch);
            self.rest_bytes = self.rest_bytes.saturating_sub(scratch.len());
            if self.rest_bytes == 0 {
                self.outputs = Outputs::default();
            }
        }
        if self.outputs.are_complete() {
            report(self.number, exited.clone(), link);
        }
        self.outputs.are_complete()
    }
}

fn report(number: u32, exited: Exited, link: &mut Link) {
    link.send(&FromGate::ProcessExited(ProcessExited { number, exited }));
}
