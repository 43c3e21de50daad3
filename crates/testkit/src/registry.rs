//! An image registry: Docker's own, `docker-registry`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::Process;
use crate::scratch::Scratch;
use crate::tool;

const HOW_TO_GET: &str =
    "run deploy/prerequisites/registry.sh, or name the program in AOD_TEST_REGISTRY";

/// `user` with the password `secret`, as `htpasswd -B` writes it.
const USERS: &str = "user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";

/// A running registry without an image; killed and removed on drop.
#[derive(Debug)]
pub struct RegistryServer {
    directory: Scratch,
    address: SocketAddr,
    _process: Process,
}

impl RegistryServer {
    /// Starts on loopback, for one user with a password; waits until it listens, 30 s at most.
    pub fn start() -> Self {
        Self::serve(true)
    }

    /// As [`Self::start`], for everybody.
    pub fn start_open() -> Self {
        Self::serve(false)
    }

    fn serve(has_users: bool) -> Self {
        let directory = Scratch::new("registry");
        let (store, users) = (
            directory.path().join("store"),
            directory.path().join("users"),
        );
        std::fs::write(&users, USERS).expect("a test directory");
        let users = if has_users {
            let users = users.display();
            format!("auth: {{htpasswd: {{realm: test, path: {users}}}}}\n")
        } else {
            String::new()
        };
        let configuration = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"127.0.0.1:0\"}}\n{users}",
            store.display(),
        );
        let path = directory.path().join("config.yml");
        std::fs::write(&path, configuration).expect("a test directory");
        let log = directory.path().join("log");
        let output = std::fs::File::create(&log).expect("a test directory");
        let mut command = Command::new(tool::find(
            "docker-registry",
            "AOD_TEST_REGISTRY",
            HOW_TO_GET,
        ));
        command
            .arg("serve")
            .arg(path)
            .stdout(Stdio::null())
            .stderr(output);
        let mut process = Process::start(&mut command);
        let address = process.wait_until("address in its log", || listening(&log));
        Self {
            directory,
            address,
            _process: process,
        }
    }

    /// `address:port`, the start of its references.
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    /// The file with the blob of a digest, 64 digits.
    pub fn blob(&self, digest: &str) -> PathBuf {
        let blobs = self
            .directory
            .path()
            .join("store/docker/registry/v2/blobs/sha256");
        blobs.join(&digest[..2]).join(digest).join("data")
    }

    /// A file with its user and password, as `docker login` writes it.
    pub fn credentials(&self) -> PathBuf {
        let path = self.directory.path().join("config.json");
        let entry = r#"{"auth": "dXNlcjpzZWNyZXQ="}"#;
        let text = format!(r#"{{"auths": {{"{}": {entry}}}}}"#, self.address);
        std::fs::write(&path, text).expect("a test directory");
        path
    }
}

/// The address that it logs once it listens.
fn listening(log: &Path) -> Option<SocketAddr> {
    const MARK: &str = "listening on ";
    let text = std::fs::read_to_string(log).ok()?;
    let rest = &text[text.find(MARK)? + MARK.len()..];
    let end =
        rest.find(|character: char| !(character.is_ascii_digit() || ".:".contains(character)))?;
    rest[..end].parse().ok()
}
