//! The gate's only loop: waits for events and handles them.

use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, set_dumpable_behavior};
use thiserror::Error;

use crate::command;
use crate::complain;
use crate::deleted;
use crate::forwarder::Forwarder;
use crate::held::Held;
use crate::lease::Lease;
use crate::link::Link;
use crate::memory;
use crate::options::Options;
use crate::outputs::{Outputs, Writer, Writers};
use crate::processes;
use crate::protocol::{
    self, CAPSULE_SOCKET, EXIT_CODE_GATE_FAILED, Exited, FromGate, GATE_SOCKET, Go, Hello,
    PROTOCOL_VERSION, Started, ToGate,
};
use crate::readiness::{Interests, Source};
use crate::secrets;
use crate::shield;
use crate::signals::Signals;

/// Bytes of one read from the node or an output: half a pipe, for speed.
const SCRATCH_SIZE_BYTES: usize = 32 * 1024;

/// Bytes of one read from a forwarded connection. Each may keep one piece in each direction for a slow end,
/// so 64 connections take at most 2 MiB of the gate's memory.
const CONNECTION_PIECE_SIZE_BYTES: usize = 16 * 1024;

/// Poll interval for conditions that no file reports: a full backlog, or dying processes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why a gate cannot begin; printed on its stderr, the container's log.
#[derive(Debug, Error)]
enum BeginError {
    /// The node has ended, or another program created the container.
    #[error("no node listens at {}: {source}", path.display())]
    NoNode { path: PathBuf, source: io::Error },
    /// The address for the capsule is not available.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        address: std::net::SocketAddr,
        source: io::Error,
    },
    /// The system lacks a resource.
    #[error("the gate cannot start: {0}")]
    System(#[from] io::Error),
}

/// The stage of the gate.
#[derive(Debug)]
enum Stage {
    /// Nothing has been started.
    Waiting,
    /// The command runs.
    Running { main: Pid },
    /// The gate starts the processes of the node.
    Holding(Held),
    /// The main process has ended; the gate kills and reaps all other processes.
    Clearing { main: Pid, exited: Exited },
    /// Only the gate is left; it empties the outputs.
    Draining { exited: Exited },
    /// The gate sends the last report.
    Reporting { code: u8 },
    /// The gate ends.
    Over { code: u8 },
}

struct Supervisor {
    stage: Stage,
    signals: Signals,
    link: Link,
    /// None before "go".
    lease: Option<Lease>,
    /// None after the end of the capsule.
    forwarder: Option<Forwarder>,
    outputs: Outputs,
    /// Children wait to be reaped without a further signal.
    must_reap: bool,
    /// See [`Exited::asked_from_outside`].
    asked_from_outside: bool,
    /// The node waits for a count, once for all its requests so far.
    must_count_deleted: bool,
    scratch: Vec<u8>,
}

/// Runs the gate and returns its exit code: the command's (see [`Exited::exit_code`]), or
/// [`EXIT_CODE_GATE_FAILED`].
pub fn run(options: &Options) -> u8 {
    let code = Supervisor::begin(options)
        .map_err(|error| error.to_string())
        .and_then(|supervisor| supervisor.supervise().map_err(|errno| errno.to_string()));
    code.unwrap_or_else(|error| {
        complain(&error);
        EXIT_CODE_GATE_FAILED
    })
}

impl Supervisor {
    fn begin(options: &Options) -> Result<Self, BeginError> {
        // First: the capsule is the same user and could otherwise trace the gate and take its files.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from)?;
        if let Err(error) = shield::protect(process::id()) {
            complain(&format!(
                "a capsule can change the limits of its gate: {error}"
            ));
        }
        let signals = Signals::install()?;
        let path = options.channel.join(GATE_SOCKET);
        let mut link =
            Link::connect(&path).map_err(|source| BeginError::NoNode { path, source })?;
        let forwarder = listen(options).inspect_err(|error| {
            let error = Some(error.to_string());
            link.send(&FromGate::Exited(Exited {
                error,
                ..Exited::default()
            }));
        })?;
        link.send(&FromGate::Hello(Hello {
            version: PROTOCOL_VERSION,
            pid: i32::try_from(process::id()).unwrap_or(i32::MAX),
            listen: forwarder.address()?,
        }));
        Ok(Self {
            stage: Stage::Waiting,
            signals,
            link,
            lease: None,
            forwarder: Some(forwarder),
            outputs: Outputs::default(),
            must_reap: false,
            asked_from_outside: false,
            must_count_deleted: false,
            scratch: vec![0; SCRATCH_SIZE_BYTES],
        })
    }

    fn supervise(mut self) -> Result<u8, Errno> {
        loop {
            if self.lease.as_ref().is_some_and(Lease::has_ended) {
                // Kill first: nothing may delay the kill.
                self.kill_all();
                complain("the lease has expired; all processes are killed");
                return Ok(EXIT_CODE_GATE_FAILED);
            }
            self.advance();
            if let Stage::Over { code } = self.stage {
                return Ok(code);
            }
            let ready = self.wait()?;
            if let Some(forwarder) = &mut self.forwarder {
                forwarder.resume();
            }
            for source in ready {
                self.handle(source)?;
            }
        }
    }

    /// Advances through the stages that need no wait.
    fn advance(&mut self) {
        if self.must_reap {
            self.reap();
        }
        if std::mem::take(&mut self.must_count_deleted)
            && matches!(self.stage, Stage::Running { .. } | Stage::Holding(_))
        {
            self.link.send(&FromGate::Deleted(deleted::count()));
        }
        if matches!(self.stage, Stage::Waiting) && self.link.is_broken() {
            self.stage = Stage::Over {
                code: EXIT_CODE_GATE_FAILED,
            };
        }
        self.clear();
        if let Stage::Holding(held) = &mut self.stage {
            held.advance(&mut self.link, &mut self.scratch);
            if held.is_finished() {
                self.report(Exited {
                    code: Some(0),
                    ..Exited::default()
                });
            }
        }
        if let Stage::Draining { exited } = &self.stage {
            while !self.outputs.are_complete() && self.link.has_room() {
                let writer = Writer::Command;
                self.outputs
                    .pump(writer, &mut self.link, Writers::Dead, &mut self.scratch);
            }
            if self.outputs.are_complete() {
                let exited = exited.clone();
                self.report(exited);
            }
        }
        if let Stage::Reporting { code } = self.stage
            && !self.link.is_pending()
        {
            self.stage = Stage::Over { code };
        }
    }

    /// Kills and reaps what processes have left.
    fn clear(&mut self) {
        match &self.stage {
            Stage::Clearing { .. } => self.forwarder = None,
            Stage::Holding(held) if held.is_clearing() => (),
            _ => return,
        }
        self.kill_all();
        self.reap();
    }

    fn wait(&self) -> Result<Vec<Source>, Errno> {
        let mut interests = Interests::default();
        interests.add(self.signals.as_fd(), true, false, Source::Signals);
        if let Some(lease) = &self.lease {
            interests.add(lease.as_fd(), true, false, Source::Lease);
        }
        if let Some(node) = self.link.stream() {
            interests.add(node, true, self.link.is_pending(), Source::Node);
        }
        let is_draining = matches!(self.stage, Stage::Draining { .. });
        if self.link.has_room() && !is_draining {
            self.outputs.add_interests(&mut interests);
            if let Stage::Holding(held) = &self.stage {
                held.add_interests(&mut interests);
            }
        }
        if let Some(forwarder) = &self.forwarder {
            forwarder.add_interests(&mut interests);
        }
        interests.wait(self.timeout())
    }

    fn timeout(&self) -> Option<Duration> {
        let is_paused = self.forwarder.as_ref().is_some_and(Forwarder::is_paused);
        if self.must_reap {
            Some(Duration::ZERO)
        } else if is_paused || self.is_clearing() {
            Some(POLL_INTERVAL)
        } else {
            None
        }
    }

    fn is_clearing(&self) -> bool {
        match &self.stage {
            Stage::Clearing { .. } => true,
            Stage::Holding(held) => held.is_clearing(),
            _ => false,
        }
    }

    fn handle(&mut self, source: Source) -> Result<(), Errno> {
        match source {
            Source::Signals => self.take_signals(),
            // Each round checks the lease first.
            Source::Lease => (),
            Source::Node => {
                self.link.flush();
                for message in self.link.receive(&mut self.scratch) {
                    self.obey(message)?;
                }
            }
            Source::Outputs => {
                let (link, scratch) = (&mut self.link, &mut self.scratch);
                if let Stage::Holding(held) = &mut self.stage {
                    held.pump(link, scratch);
                } else {
                    let writer = Writer::Command;
                    self.outputs.pump(writer, link, Writers::Living, scratch);
                }
            }
            Source::Listener => {
                if let Some(forwarder) = &mut self.forwarder {
                    forwarder.accept();
                }
            }
            Source::Connection(slot) => {
                if let Some(forwarder) = &mut self.forwarder {
                    forwarder.pump(slot, &mut self.scratch[..CONNECTION_PIECE_SIZE_BYTES]);
                }
            }
        }
        Ok(())
    }

    fn take_signals(&mut self) {
        let caught = self.signals.take();
        self.must_reap |= caught.child;
        if let Stage::Running { .. } | Stage::Holding(_) = self.stage {
            self.asked_from_outside |= caught.from_outside;
        }
        for signal in caught.passed_on {
            self.pass_on(signal, caught.from_outside);
        }
    }

    /// Passes a received signal to the command; without a command, the signal ends the gate.
    fn pass_on(&mut self, signal: Signal, is_from_outside: bool) {
        match &mut self.stage {
            Stage::Waiting => {
                let exited = Exited {
                    signal: Some(signal.as_raw()),
                    ..Exited::default()
                };
                self.stage = Stage::Over {
                    code: exited.exit_code(),
                };
            }
            Stage::Running { main } => processes::signal_main(*main, signal),
            Stage::Holding(held) => {
                let ends = [Signal::TERM, Signal::INT, Signal::QUIT].contains(&signal);
                if is_from_outside && ends {
                    held.finish();
                }
                held.signal_all(signal);
            }
            _ => (),
        }
    }

    fn obey(&mut self, message: ToGate) -> Result<(), Errno> {
        let Some(lease) = &mut self.lease else {
            match (message, &self.stage) {
                (ToGate::Go(go), Stage::Waiting) => self.go(go)?,
                _ => self.refuse(),
            }
            return Ok(());
        };
        match message {
            ToGate::Go(_) => self.refuse(),
            ToGate::Lease(renewal) => lease.renew(renewal.milliseconds)?,
            ToGate::CountDeleted => self.must_count_deleted = true,
            ToGate::Signal(sent) => self.signal(&sent),
            ToGate::Process(process) => match &mut self.stage {
                Stage::Holding(held) => held.start(process, &mut self.link),
                Stage::Running { .. } => self.refuse(),
                // The order arrived after the end.
                _ => (),
            },
            ToGate::Finish => {
                if let Stage::Holding(held) = &mut self.stage {
                    held.finish();
                }
            }
        }
        Ok(())
    }

    fn refuse(&mut self) {
        complain("unexpected message from the node");
        self.link.close();
    }

    /// Passes on a signal of the node, unless it arrives after the end of its processes.
    fn signal(&mut self, sent: &protocol::Signal) {
        let Some(signal) = Signal::from_named_raw(sent.signal) else {
            return;
        };
        match &mut self.stage {
            Stage::Running { main } => processes::signal_main(*main, signal),
            Stage::Holding(held) => match sent.process {
                Some(number) => held.signal(number, signal, &mut self.link),
                None => {
                    held.finish();
                    held.signal_all(signal);
                }
            },
            _ => (),
        }
    }

    fn go(&mut self, go: Go) -> Result<(), Errno> {
        self.lease = Some(Lease::begin(go.lease_milliseconds)?);
        if let Err(error) = secrets::write(&go.secrets) {
            // No code: the command did not fail.
            self.report(Exited {
                error: Some(error.to_string()),
                ..Exited::default()
            });
            return Ok(());
        }
        if go.holds {
            self.link.send(&FromGate::Started(Started {
                pid: i32::try_from(process::id()).unwrap_or(i32::MAX),
            }));
            self.stage = Stage::Holding(Held::new(go.env));
            return Ok(());
        }
        match command::start(&go.argv, &go.env, None) {
            Ok(started) => {
                self.outputs = started.outputs;
                let pid = started.main.as_raw_nonzero().get();
                self.link.send(&FromGate::Started(Started { pid }));
                self.stage = Stage::Running { main: started.main };
            }
            Err(error) => self.report(Exited {
                code: Some(error.exit_code().into()),
                error: Some(error.text()),
                ..Exited::default()
            }),
        }
        Ok(())
    }

    /// Reaps children and records the ends of main processes, and the end of all processes.
    fn reap(&mut self) {
        let reaped = processes::reap(|pid| match &self.stage {
            Stage::Running { main } => *main == pid,
            Stage::Holding(held) => held.is_main(pid),
            _ => false,
        });
        self.must_reap = reaped.more;
        for (main, exited) in reaped.ended {
            match &mut self.stage {
                Stage::Holding(held) => {
                    let asked_from_outside = self.asked_from_outside;
                    held.ended(
                        main,
                        Exited {
                            asked_from_outside,
                            ..exited
                        },
                    );
                }
                _ => self.stage = Stage::Clearing { main, exited },
            }
        }
        if !reaped.none_left {
            return;
        }
        match &mut self.stage {
            Stage::Holding(held) => held.cleared(),
            Stage::Clearing { exited, .. } => {
                let exited = std::mem::take(exited);
                self.stage = Stage::Draining { exited };
            }
            _ => (),
        }
    }

    fn kill_all(&self) {
        match &self.stage {
            Stage::Running { main } | Stage::Clearing { main, .. } => {
                processes::kill_all(Some(*main));
            }
            Stage::Holding(held) => held.kill_all(),
            _ => (),
        }
    }

    fn report(&mut self, mut exited: Exited) {
        exited.out_of_memory = memory::killed() > 0;
        exited.asked_from_outside = self.asked_from_outside;
        let code = exited.exit_code();
        self.link.send(&FromGate::Exited(exited));
        self.stage = Stage::Reporting { code };
    }
}

fn listen(options: &Options) -> Result<Forwarder, BeginError> {
    let capsule_socket = options.channel.join(CAPSULE_SOCKET);
    Forwarder::listen(options.listen, &capsule_socket).map_err(|source| BeginError::Listen {
        address: options.listen,
        source,
    })
}
