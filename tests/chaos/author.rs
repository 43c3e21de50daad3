//! The author of a capsule: registers one version after the other and runs each, so that faults cut builds, pushes and
//! pulls of images. The versions share all layers but a small one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aod_tests::images::CapsuleDirectory;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::load::{Asker, Load, Seen, answer, parsed};

/// The capsule, below `tests/capsules`.
const CAPSULE: &str = "version";

/// Maximum time for a registration; afterwards the author tries the next version at another gateway.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two versions.
const REST: Duration = Duration::from_secs(2);

/// The author.
pub(crate) struct Author {
    load: Arc<Load>,
    asker: Asker,
    http: Client,
    capsule: CapsuleDirectory,
    seen: Arc<Mutex<Registrations>>,
}

/// What became of the versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registrations {
    pub(crate) tried: u64,
    pub(crate) registered: u64,
    /// Rejections that must not happen.
    pub(crate) violations: Vec<String>,
}

impl Author {
    pub(crate) fn new(load: &Arc<Load>) -> Self {
        let http = Client::builder().no_proxy().timeout(PATIENCE).build();
        Self {
            load: Arc::clone(load),
            asker: Asker::new(Arc::clone(load), 0),
            http: http.expect("an HTTP client"),
            capsule: CapsuleDirectory::new(CAPSULE),
            seen: Arc::default(),
        }
    }

    /// Its requests for runs.
    pub(crate) fn requests(&self) -> Arc<Mutex<Seen>> {
        self.asker.seen()
    }

    pub(crate) fn registrations(&self) -> Arc<Mutex<Registrations>> {
        Arc::clone(&self.seen)
    }

    /// Registers and runs versions until the load ends.
    pub(crate) async fn work(mut self) {
        let (mut version, mut is_registered) = (0, false);
        while !self.load.is_over() {
            version += 1;
            is_registered |= self.register(version).await;
            if is_registered {
                self.run(version).await;
            }
            tokio::time::sleep(REST).await;
        }
    }

    /// Whether the gateway accepted the version.
    async fn register(&mut self, version: u64) -> bool {
        self.capsule.write("version", &version.to_string());
        let path = format!("/v1/capsules?directory={CAPSULE}&pool=any");
        let person = self.load.person(version);
        let request = person
            .request(&self.http, "POST", &path)
            .header("content-type", "application/x-tar")
            .body(self.capsule.packed());
        let told = answer(request).await;
        let mut seen = self.seen.lock().expect("no test of it panics");
        seen.tried += 1;
        match told {
            None => false,
            Some((status, _)) if status.is_success() => {
                seen.registered += 1;
                true
            }
            Some((status, body)) => {
                let text = String::from_utf8_lossy(&body).into_owned();
                if !is_worth_a_retry(status, &parsed(&body)) {
                    let text = format!("version {version} was rejected with {status}: {text}");
                    seen.violations.push(text);
                }
                false
            }
        }
    }

    /// Runs the registered version: one of those that were tried.
    async fn run(&mut self, version: u64) {
        let number = self.load.next_number();
        let index = self.asker.begin(number);
        let body = json!({"capsule": CAPSULE, "arguments": {}, "files": []});
        let result = self.asker.result(number, index, &body).await;
        let verdict = result.and_then(|result| {
            let found = result["output"]["version"].as_u64();
            let is_tried = found.is_some_and(|found| (1..=version).contains(&found));
            let wrong = || format!("expected a version up to {version}: {result}");
            is_tried.then_some(()).ok_or_else(wrong)
        });
        self.asker
            .note(|seen| seen.asked[index].verdict = Some(verdict));
    }
}

/// A failure of the platform, which an author repeats.
fn is_worth_a_retry(status: StatusCode, problem: &Value) -> bool {
    status.is_server_error() || problem["retryable"] == json!(true)
}
