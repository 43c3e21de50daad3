//! Searches for the operator's key in everything stored or printed: a whole `aod up` with its most verbose logs, and a
//! capsule that prints everything it finds.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use aod_testkit::TraceReceiver;
use aod_tests::client::eventually;
use aod_tests::images::CapsuleDirectory;
use aod_tests::model_stub::ModelStub;
use aod_tests::programs::aod;
use serde_json::{Value, json};
use tempfile::TempDir;

const KEY: &str = "canary-9d07c3aa-operators-key";

/// Calls a model three times, prints everything that it can see, and crashes when the test has searched its container.
const SCRIPT: &str = r#"
printf '{"model": "gpt-5.2", "messages": [{"role": "user", "content": "hello"}]}' >/workspace/request
for number in 1 2 3; do
    ask POST /llm/openai/v1/chat/completions /workspace/request
    echo
done
env
cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n'
find /run /.aod /io /tmp /workspace -type f -exec cat {} + 2>/dev/null
echo looking
until [ -e /tmp/searched ]; do sleep 0.1; done
kill -SEGV $$
"#;

/// The grants of the capsule.
const MANIFEST: &str = "\
version: 1
name: probe
title: Probe
description: Tells what it sees.
model: openai/gpt-5.2
";

/// The files at or below `places` that contain `needle`.
pub(super) fn files_with(needle: &str, places: &[PathBuf]) -> Vec<String> {
    let output = Command::new("grep")
        .args(["-rlaF", needle])
        .args(places)
        .output();
    let output = output.expect("the command grep is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

/// An `aod up` with its own directory, and its output; ends with the value.
pub(super) struct Up {
    directory: TempDir,
    process: Child,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.aod(&["down"]);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Up {
    pub(super) async fn start(models: &str, flags: &[&str]) -> Self {
        // Short, because it contains sockets.
        let directory = tempfile::Builder::new().prefix("aod-").tempdir();
        let directory = directory.expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("secrets")).expect("a test directory");
        let key = at("secrets").join("OPENAI_API_KEY");
        fs::write(&key, KEY).expect("a test directory");
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("a test file");
        fs::write(at("models.yaml"), models).expect("a test directory");
        let log = File::create(at("log")).expect("a test directory");
        let mut command = Command::new(aod());
        command
            .args(["--log", "trace", "up", "--listen", "127.0.0.1:0"])
            .arg("--data")
            .arg(at("data"))
            .arg("--secrets")
            .arg(at("secrets"))
            .arg("--models")
            .arg(at("models.yaml"))
            .args(flags)
            .env("RUST_BACKTRACE", "full")
            .stdout(log.try_clone().expect("a test file"))
            .stderr(log);
        let process = command.spawn().expect("aod starts");
        let up = Self { directory, process };
        let connection = up.at("data/connection.json");
        eventually("aod up", async || connection.exists()).await;
        up
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn aod(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(aod());
        let command = command.args(arguments).arg("--data").arg(self.at("data"));
        command.output().expect("aod starts")
    }

    /// The output of a command, stdout and stderr.
    pub(super) fn told(&self, arguments: &[&str]) -> String {
        let output = self.aod(arguments);
        let [out, errors] = [output.stdout, output.stderr];
        String::from_utf8_lossy(&out).into_owned() + &String::from_utf8_lossy(&errors)
    }
}

fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output();
    let output = output.expect("the docker command is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The containers of the cluster, and the environments of their processes on the host. Each capsule is then told that
/// it was searched.
fn outside_of_containers(cluster: &str) -> String {
    let filter = format!("label=dev.aod.cluster={cluster}");
    let containers = docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
    let mut told = String::new();
    for id in containers.lines() {
        told += &docker(&["inspect", id]);
        let pid = docker(&["inspect", "--format", "{{.State.Pid}}", id]);
        let environment = Path::new("/proc").join(pid.trim()).join("environ");
        told += &String::from_utf8_lossy(&fs::read(environment).unwrap_or_default());
        docker(&["exec", id, "touch", "/tmp/searched"]);
    }
    assert!(told.contains("\"Image\""), "a container was there");
    told
}

fn images(cluster: &str, archive: &Path) -> String {
    let filter = format!("label=dev.aod.cluster={cluster}");
    let images = docker(&["images", "-q", "--no-trunc", "--filter", &filter]);
    let images: Vec<&str> = images.lines().collect();
    assert!(!images.is_empty(), "an image was built");
    let archive = archive.to_str().expect("a test path");
    docker(&[&["save", "--output", archive], images.as_slice()].concat());
    docker(&[&["inspect"], images.as_slice()].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_key_is_in_no_stored_or_printed_data() {
    search(&[], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_key_is_in_no_stored_or_exported_contents() {
    search(&["--keep-model-contents", "--otlp-contents"], true).await;
}

/// Runs the capsule in an `aod up` with `flags`, whose traces contain contents if `is_told`, and searches.
async fn search(flags: &[&str], is_told: bool) {
    let receiver = TraceReceiver::start();
    let leaking = json!({"status": 401, "message": format!("the key {KEY} is not known")});
    let stub = ModelStub::start(&[json!({"text": "hello"}), leaking, json!({"drop": true})]);
    let models = format!("providers:\n  openai: {{base_url: '{}/v1'}}\n", stub.url());
    let url = receiver.url();
    let up = Up::start(&models, &[&["--otlp", &url], flags].concat()).await;
    let capsule = CapsuleDirectory::new("probe");
    capsule.write("agent.yaml", MANIFEST);
    let mut told = up.told(&[
        "capsule",
        "build",
        capsule.path().to_str().expect("a test path"),
    ]);
    fs::write(up.at("script.sh"), SCRIPT).expect("a test directory");
    let script = format!("script=@{}", up.at("script.sh").display());
    let started = up.aod(&[
        "run", "probe", "-i", &script, "--detach", "--format", "json",
    ]);
    let started: Value = serde_json::from_slice(&started.stdout)
        .unwrap_or_else(|error| panic!("{error}: {started:?}\n{told}"));
    let run = started["id"].as_str().expect("a run has an id").to_owned();
    eventually("the capsule", async || {
        up.told(&["runs", "logs", &run]).contains("looking")
    })
    .await;

    let cluster = fs::read_to_string(up.at("data/cluster")).expect("a file of aod's");
    told += &outside_of_containers(cluster.trim());
    eventually("the end", async || {
        up.told(&["runs", "show", &run]).contains("failed")
    })
    .await;
    told += &images(cluster.trim(), &up.at("images.tar"));
    for command in ["show", "logs", "events", "tree"] {
        for format in ["text", "json"] {
            told += &up.told(&["runs", command, &run, "--format", format]);
        }
    }
    told += &up.told(&["doctor"]);
    let node = fs::read_to_string(up.at("data/node/node-id")).expect("a node id");
    let node = node.lines().next().expect("a line");
    told += &docker(&["logs", &format!("{}-nats-{node}", cluster.trim())]);

    // The provider received the key, so it could have been stored.
    let asked = stub.requests().await;
    assert!(asked.to_string().contains(KEY), "{asked}");
    assert!(told.contains("the key *** is not known"), "{told}");
    assert!(!told.contains(KEY), "{told}");
    let places = ["data", "log", "images.tar"].map(|name| up.at(name));
    assert_eq!(files_with(KEY, &places), [""; 0]);
    // The run, its attempt, and three model calls.
    let spans = receiver.wait_for(5);
    let traced = receiver.text();
    assert!(!traced.contains(KEY), "{traced}");
    let calls = spans.iter().filter(|span| span.name == "chat gpt-5.2");
    assert_eq!(calls.count(), 3, "{spans:#?}");
    for said in ["hello", "the key *** is not known", "script.sh"] {
        assert_eq!(traced.contains(said), is_told, "{said} in {traced}");
    }
    // Control: the search finds an existing key.
    assert_eq!(files_with(KEY, &[up.at("secrets")]).len(), 1);
}
