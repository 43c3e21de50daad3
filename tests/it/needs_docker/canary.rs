//! A key of the operator's, searched for wherever anything is kept or told: a whole `aod up`, with its logs at their
//! most talkative, and a capsule that tells all that it finds.

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

/// Asks a model three times, tells everything that it can see, and ends with a crash.
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
read -r _ </io/input/script.sh
sleep 5
kill -SEGV $$
"#;

/// What is granted to the capsule.
const MANIFEST: &str = "\
version: 1
name: probe
title: Probe
description: Tells what it sees.
model: openai/gpt-5.2
";

/// The files at or below `places` that hold `needle`.
pub(super) fn files_with(needle: &str, places: &[PathBuf]) -> Vec<String> {
    let output = Command::new("grep")
        .args(["-rlaF", needle])
        .args(places)
        .output();
    let output = output.expect("the command grep is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

/// An `aod up` on a directory of its own, with everything that it printed; it ends with the value.
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
        // Short: sockets lie below it.
        let directory = tempfile::Builder::new().prefix("aod-").tempdir();
        let directory = directory.expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("secrets")).expect("a directory of ours");
        let key = at("secrets").join("OPENAI_API_KEY");
        fs::write(&key, KEY).expect("a directory of ours");
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("a file of ours");
        fs::write(at("models.yaml"), models).expect("a directory of ours");
        let log = File::create(at("log")).expect("a directory of ours");
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
            .stdout(log.try_clone().expect("a file of ours"))
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

    /// What a command prints, on both its outputs.
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

/// The containers of the cluster, and the environments of their processes as the host has them.
fn outside_of_containers(cluster: &str) -> String {
    let filter = format!("label=dev.aod.cluster={cluster}");
    let containers = docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
    let mut told = String::new();
    for id in containers.lines() {
        told += &docker(&["inspect", id]);
        let pid = docker(&["inspect", "--format", "{{.State.Pid}}", id]);
        let environment = Path::new("/proc").join(pid.trim()).join("environ");
        told += &String::from_utf8_lossy(&fs::read(environment).unwrap_or_default());
    }
    assert!(told.contains("\"Image\""), "a container was there");
    told
}

fn images(cluster: &str, archive: &Path) -> String {
    let filter = format!("label=dev.aod.cluster={cluster}");
    let images = docker(&["images", "-q", "--no-trunc", "--filter", &filter]);
    let images: Vec<&str> = images.lines().collect();
    assert!(!images.is_empty(), "an image was built");
    let archive = archive.to_str().expect("a path of ours");
    docker(&[&["save", "--output", archive], images.as_slice()].concat());
    docker(&[&["inspect"], images.as_slice()].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_the_operators_is_nowhere() {
    search(&[], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_the_operators_is_nowhere_though_contents_are_kept_and_told() {
    search(&["--keep-model-contents", "--otlp-contents"], true).await;
}

/// Has the capsule run below an `aod up` with `flags`, whose traces tell contents or do not, and searches.
async fn search(flags: &[&str], is_told: bool) {
    let receiver = TraceReceiver::start();
    let leaking = json!({"status": 401, "message": format!("the key {KEY} is not known")});
    let stub = ModelStub::start(&[json!({"text": "hello"}), leaking, json!({"drop": true})]);
    let models = format!("providers:\n  openai: {{base_url: '{}/v1'}}\n", stub.url());
    let url = receiver.url();
    let up = Up::start(&models, &[&["--otlp", &url], flags].concat()).await;
    let capsule = CapsuleDirectory::new("probe");
    capsule.write("agent.yaml", MANIFEST);
    let mut told = up.told(&["capsule", "build", capsule.path().to_str().expect("ours")]);
    fs::write(up.at("script.sh"), SCRIPT).expect("a directory of ours");
    let script = format!("script=@{}", up.at("script.sh").display());
    let started = up.aod(&[
        "run", "probe", "-i", &script, "--detach", "--output", "json",
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
            told += &up.told(&["runs", command, &run, "--output", format]);
        }
    }
    told += &up.told(&["doctor"]);
    told += &docker(&["logs", &format!("{}-nats", cluster.trim())]);

    // The provider was asked with it, so it was there to be found.
    let asked = stub.requests().await;
    assert!(asked.to_string().contains(KEY), "{asked}");
    assert!(told.contains("the key *** is not known"), "{told}");
    assert!(!told.contains(KEY), "{told}");
    let places = ["data", "log", "images.tar"].map(|name| up.at(name));
    assert_eq!(files_with(KEY, &places), [""; 0]);
    // The run, its attempt, and three calls of a model.
    let spans = receiver.wait_for(5);
    let traced = receiver.text();
    assert!(!traced.contains(KEY), "{traced}");
    let calls = spans.iter().filter(|span| span.name == "chat gpt-5.2");
    assert_eq!(calls.count(), 3, "{spans:#?}");
    for said in ["hello", "the key *** is not known", "script.sh"] {
        assert_eq!(traced.contains(said), is_told, "{said} in {traced}");
    }
    // The search finds what is there.
    assert_eq!(files_with(KEY, &[up.at("secrets")]).len(), 1);
}
