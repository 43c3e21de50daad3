//! The SDK's stub of model providers, as a separate program.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use aod_testkit::Scratch;
use serde_json::Value;

/// A running stub with scripted answers; ends with the value.
#[derive(Debug)]
pub struct ModelStub {
    child: Child,
    port: u16,
    /// Contains the script.
    _directory: Scratch,
}

impl Drop for ModelStub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ModelStub {
    /// Starts with these steps, one for each request; `aod.testing.stub` describes them.
    pub fn start(steps: &[Value]) -> Self {
        let directory = Scratch::new("models");
        let script = directory.path().join("script.json");
        let text = serde_json::to_vec(steps).expect("plain data");
        std::fs::write(&script, text).expect("a test directory");
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capsules/sdk/src");
        let mut child = Command::new("python3")
            .args(["-m", "aod.testing.stub", "--script"])
            .arg(&script)
            .env("PYTHONPATH", sdk)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let output = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it prints its port");
        let port = line.trim().parse();
        Self {
            child,
            port: port.unwrap_or_else(|error| panic!("{line:?} is no port: {error}")),
            _directory: directory,
        }
    }

    /// `http://address:port`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The received requests: a list of `path`, `headers` and `body`.
    pub async fn requests(&self) -> Value {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build();
        let client = client.expect("an HTTP client");
        let answer = client.get(format!("{}/requests", self.url())).send().await;
        answer
            .expect("it answers")
            .json()
            .await
            .expect("it answers with JSON")
    }
}
