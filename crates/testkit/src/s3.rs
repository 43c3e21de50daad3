//! An S3 server (`s3s-fs`): buckets are directories, signatures are checked.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::Process;
use crate::scratch::Scratch;
use crate::tool;

const HOW_TO_GET: &str = "install it with `cargo install s3s-fs --version 0.14.1 --features binary`, \
    then put it on PATH or name it in AOD_TEST_S3S_FS";

/// A running server with an empty bucket; killed and removed on drop.
#[derive(Debug)]
pub struct S3Server {
    process: Process,
    directory: Scratch,
    address: SocketAddr,
}

impl S3Server {
    /// Name of the only bucket.
    pub const BUCKET: &str = "aod";
    /// The access key id.
    pub const ACCESS_KEY: &str = "test-access";
    /// The secret of [`ACCESS_KEY`](Self::ACCESS_KEY).
    pub const SECRET_KEY: &str = "test-secret";

    /// Starts on loopback; waits until the server listens, 30 s at most.
    pub fn start() -> Self {
        Self::start_on(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// As [`start`](Self::start), on another address of this machine.
    pub fn start_on(address: IpAddr) -> Self {
        let directory = Scratch::new("s3");
        std::fs::create_dir_all(directory.path().join("root").join(Self::BUCKET))
            .expect("a test directory");
        let (process, address) = launch(&directory, SocketAddr::new(address, 0));
        Self {
            process,
            directory,
            address,
        }
    }

    /// `http://address:port`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The directory of the objects as files, for tests that damage them.
    pub fn bucket_directory(&self) -> PathBuf {
        self.directory.path().join("root").join(Self::BUCKET)
    }

    /// Kills it with SIGKILL and waits for the end; see [`restart`](Self::restart).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same address and files (after SIGKILL if it still runs).
    pub fn restart(&mut self) {
        self.process.kill();
        (self.process, self.address) = launch(&self.directory, self.address);
    }

    /// SIGSTOP: connections stay, requests get no answer.
    pub fn pause(&self) {
        self.process.signal("STOP");
    }

    /// SIGCONT after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.process.signal("CONT");
    }
}

fn launch(directory: &Scratch, address: SocketAddr) -> (Process, SocketAddr) {
    let program = tool::find("s3s-fs", "AOD_TEST_S3S_FS", HOW_TO_GET);
    let log = directory.path().join("log");
    let output = std::fs::File::create(&log).expect("a test directory");
    let mut command = Command::new(program);
    command
        .args([
            "--host",
            &address.ip().to_string(),
            "--port",
            &address.port().to_string(),
        ])
        .args([
            "--access-key",
            S3Server::ACCESS_KEY,
            "--secret-key",
            S3Server::SECRET_KEY,
        ])
        .arg(directory.path().join("root"))
        .env("RUST_LOG", "s3s_fs=info")
        .stdout(output)
        .stderr(Stdio::null());
    let mut process = Process::start(&mut command);
    let address = process.wait_until("address in its log", || listening(&log));
    (process, address)
}

/// The address that the server logs once it listens: `server is running at http://…`.
fn listening(log: &Path) -> Option<SocketAddr> {
    const MARK: &str = "server is running at http://";
    let text = std::fs::read_to_string(log).ok()?;
    let rest = &text[text.find(MARK)? + MARK.len()..];
    let end = rest.find(|character: char| {
        !(character.is_ascii_digit() || ".:[]abcdef".contains(character))
    })?;
    rest[..end].parse().ok()
}
