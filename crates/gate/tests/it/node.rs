//! A node with one gate: the fixture of these tests.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use aod_gate::protocol::{
    CAPSULE_SOCKET, Decoder, Exited, FromGate, GATE_SOCKET, Go, Lease, Message as _,
    PROTOCOL_VERSION, Process, ProcessExited, SecretFile, Signal, ToGate,
};
use tempfile::TempDir;

/// Maximum time of each wait; far more than necessary.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A lease that no test outlives.
pub(crate) const LONG_LEASE_MILLISECONDS: u64 = 60_000;

/// The directory with both sockets, served by the test.
pub(crate) struct Channel {
    pub(crate) directory: TempDir,
    gates: UnixListener,
    pub(crate) capsules: UnixListener,
}

impl Channel {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let gates = UnixListener::bind(directory.path().join(GATE_SOCKET)).expect("a short path");
        let capsules =
            UnixListener::bind(directory.path().join(CAPSULE_SOCKET)).expect("a short path");
        Self {
            directory,
            gates,
            capsules,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// All messages of a gate that does not wait for "go".
    pub(crate) fn all_messages(&self) -> Vec<FromGate> {
        let mut bytes = Vec::new();
        accept(&self.gates).read_to_end(&mut bytes).expect("an end");
        let mut decoder = Decoder::new();
        decoder.push(&bytes);
        let mut messages = Vec::new();
        while let Some(message) = decoder.next_message().expect("a gate that is understood") {
            messages.push(message);
        }
        decoder.finish().expect("whole messages");
        messages
    }
}

/// A gate that has sent its hello; ended on drop, with its processes.
pub(crate) struct Gate {
    pub(crate) channel: Channel,
    process: Child,
    pub(crate) connection: UnixStream,
    decoder: Decoder<FromGate>,
    /// The address that the gate forwards.
    pub(crate) listen: SocketAddr,
    /// The gate's process id in its own namespace.
    pub(crate) own_pid: i32,
}

/// All messages of a gate after "go".
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exited: Exited,
}

/// The arguments of a gate that serves `channel`.
pub(crate) fn gate_arguments(channel: &Path, listen: &str) -> [String; 4] {
    let channel = channel.to_str().expect("UTF-8").to_owned();
    [
        "--channel".into(),
        channel,
        "--listen".into(),
        listen.into(),
    ]
}

/// The command of a gate without arguments.
pub(crate) fn gate_command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_aod-gate"))
}

impl Gate {
    /// Starts a gate as an ordinary process.
    pub(crate) fn start() -> Self {
        Self::start_by(gate_command(), Channel::new())
    }

    /// Starts a gate by `command` with its arguments.
    pub(crate) fn start_by(mut command: Command, channel: Channel) -> Self {
        let process = command
            .args(gate_arguments(channel.path(), "127.0.0.1:0"))
            .stdin(Stdio::null())
            .spawn()
            .expect("the gate can be started");
        let connection = accept(&channel.gates);
        let mut gate = Self {
            channel,
            process,
            connection,
            decoder: Decoder::new(),
            listen: SocketAddr::from(([0, 0, 0, 0], 0)),
            own_pid: 0,
        };
        let FromGate::Hello(hello) = gate.next() else {
            panic!("the first message is a hello")
        };
        assert_eq!(hello.version, PROTOCOL_VERSION);
        gate.listen = hello.listen;
        gate.own_pid = hello.pid;
        gate
    }

    /// Starts a shell script with a usual `PATH` and returns its process id.
    pub(crate) fn go_with_script(&mut self, script: &str, lease_milliseconds: u64) -> i32 {
        self.go(
            &["/bin/sh", "-c", script],
            &[("PATH", "/usr/bin:/bin")],
            lease_milliseconds,
        );
        match self.next() {
            FromGate::Started(started) => started.pid,
            other => panic!("not started: {other:?}"),
        }
    }

    pub(crate) fn go(&mut self, argv: &[&str], env: &[(&str, &str)], lease_milliseconds: u64) {
        let env = env
            .iter()
            .map(|&(key, value)| (key.into(), value.into()))
            .collect();
        let argv = argv.iter().map(ToString::to_string).collect();
        self.send(&ToGate::Go(Go {
            holds: false,
            argv,
            env,
            lease_milliseconds,
            secrets: Vec::new(),
        }));
    }

    /// Makes the gate hold.
    pub(crate) fn hold(&mut self) {
        self.send(&ToGate::Go(Go {
            holds: true,
            argv: Vec::new(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            lease_milliseconds: LONG_LEASE_MILLISECONDS,
            secrets: Vec::new(),
        }));
        assert!(matches!(self.next(), FromGate::Started(_)));
    }

    /// Starts a shell script as the process `number`, with `env` and the file `stdin`.
    pub(crate) fn start_script(
        &mut self,
        number: u32,
        script: &str,
        env: &[(&str, &str)],
        stdin: Option<&Path>,
    ) {
        let env = env.iter().map(|&(key, value)| (key.into(), value.into()));
        self.send(&ToGate::Process(Process {
            number,
            argv: ["/bin/sh", "-c", script].map(Into::into).into(),
            env: env.collect(),
            stdin: stdin.map(|path| path.display().to_string()),
        }));
    }

    /// Reads to the end of the next process; returns its stdout, and its end.
    pub(crate) fn end_of_process(&mut self) -> (Vec<u8>, ProcessExited) {
        let mut stdout = Vec::new();
        loop {
            match self.next() {
                FromGate::ProcessStdout(_, bytes) => stdout.extend(bytes),
                FromGate::ProcessExited(exited) => return (stdout, exited),
                other => panic!("at the wrong time: {other:?}"),
            }
        }
    }

    /// Starts a shell script that finds `value` in the file `path`.
    pub(crate) fn go_with_secret(&mut self, script: &str, path: &Path, value: &str) {
        self.send(&ToGate::Go(Go {
            holds: false,
            argv: ["/bin/sh", "-c", script].map(Into::into).into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            lease_milliseconds: LONG_LEASE_MILLISECONDS,
            secrets: vec![SecretFile {
                path: path.display().to_string(),
                value: value.into(),
            }],
        }));
    }

    pub(crate) fn send(&mut self, message: &ToGate) {
        let mut frame = Vec::new();
        message.encode(&mut frame).expect("a small message");
        self.connection
            .write_all(&frame)
            .expect("a gate that listens");
    }

    pub(crate) fn send_signal(&mut self, signal: i32) {
        let process = None;
        self.send(&ToGate::Signal(Signal { signal, process }));
    }

    pub(crate) fn renew(&mut self, milliseconds: u64) {
        self.send(&ToGate::Lease(Lease { milliseconds }));
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> FromGate {
        self.next_or_end().expect("a message, not the end")
    }

    /// The next message, or none at the end of the connection.
    pub(crate) fn next_or_end(&mut self) -> Option<FromGate> {
        let mut piece = vec![0; 64 * 1024];
        loop {
            if let Some(message) = self
                .decoder
                .next_message()
                .expect("a gate that is understood")
            {
                return Some(message);
            }
            match self.connection.read(&mut piece) {
                // A reset: the gate has not read everything.
                Ok(0) => return None,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Ok(size_bytes) => self.decoder.push(&piece[..size_bytes]),
                Err(error) => panic!("no message in time: {error}"),
            }
        }
    }

    /// Reads until stdout has exactly the content `expected`.
    pub(crate) fn expect_stdout(&mut self, expected: &str) {
        let mut stdout = Vec::new();
        while stdout != expected.as_bytes() {
            match self.next() {
                FromGate::Stdout(bytes) => stdout.extend(bytes),
                other => panic!("{other:?} instead of {expected:?} after {stdout:?}"),
            }
        }
    }

    /// Reads to the end, which must be an exit and then the end of the connection.
    pub(crate) fn rest(&mut self) -> Seen {
        let mut seen = Seen::default();
        loop {
            match self.next() {
                FromGate::Stdout(bytes) => seen.stdout.extend(bytes),
                FromGate::Stderr(bytes) => seen.stderr.extend(bytes),
                FromGate::Exited(exited) => {
                    seen.exited = exited;
                    assert_eq!(self.next_or_end(), None);
                    return seen;
                }
                other => panic!("at the wrong time: {other:?}"),
            }
        }
    }

    /// Waits for the gate's own end.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        wait_for_exit(&mut self.process).code()
    }

    /// The started process: the gate, or the parent of the gate.
    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // Before "go" the end of the connection ends the gate, afterwards a lease without time.
        let mut frame = Vec::new();
        let end = ToGate::Lease(Lease { milliseconds: 0 });
        if end.encode(&mut frame).is_ok() {
            let _ = self.connection.write_all(&frame);
        }
        let _ = self.connection.shutdown(std::net::Shutdown::Both);
        let begin = Instant::now();
        while begin.elapsed() < DEADLINE && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::yield_now();
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a signal to a process of this host, as an operator would.
pub(crate) fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .expect("kill");
    assert!(status.success());
}

/// Waits for the end of a process; kills a process that takes too long.
pub(crate) fn wait_for_exit(process: &mut Child) -> ExitStatus {
    let mut ended = None;
    let is_in_time = holds_in_time(|| {
        ended = process.try_wait().expect("own child");
        ended.is_some()
    });
    if !is_in_time {
        let _ = process.kill();
    }
    ended.expect("the process has ended in time")
}

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_in_time(condition), "not in time: {what}");
}

fn holds_in_time(mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < DEADLINE {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Accepts one connection, with the deadline as read time-out.
pub(crate) fn accept(listener: &UnixListener) -> UnixStream {
    listener.set_nonblocking(true).expect("a socket");
    let mut accepted = None;
    wait_until("a connection", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.expect("as waited for");
    stream.set_nonblocking(false).expect("a socket");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    stream
}

/// Whether a process of this host lives; a zombie does not.
pub(crate) fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"))
    })
}
