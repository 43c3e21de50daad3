//! A cluster in this process whose capsules are containers of this machine's own Docker.
//!
//! Containers and images have the cluster's name, and are removed with the value, even after a panic; the next test
//! removes the leftovers of a killed one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use aod_docker::DockerRuntime;
use aod_domain::admission::Capacity;
use aod_domain::capsule::{Needs, Resources};
use aod_jetstream::Broker;
use aod_node::{GATE_BINARY, load_or_draw};
use aod_ports::clock::SystemClock;
use aod_ports::container_runtime::{ContainerRuntime as _, ImageBuild};
use aod_testkit::capsules::registration;
use futures::future::join_all;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::block_in_place;

use crate::client::{Client, PATIENCE, eventually};
use crate::cluster::{Cluster, append_registration, store_schema};
use crate::images::CapsuleDirectory;

const ENGINE: &str = "/var/run/docker.sock";

/// Prefix of the names of these clusters, before the id of the process.
const CLUSTER_PREFIX: &str = "aod-tests-";

/// The label of containers and images that names their cluster.
const CLUSTER_LABEL: &str = "dev.aod.cluster";

/// Containers that compute concurrently: two for each processor of the reference machine, because Docker takes most of
/// their time.
const SLOTS: usize = 4;

/// Maximum time of a build that installs packages.
const BUILD_PATIENCE: Duration = Duration::from_secs(600);

/// Resources of each test capsule: small enough that several exhausted ones do no harm.
pub const RESOURCES: Resources = Resources {
    cpu_millis: 500,
    memory_bytes: 64 << 20,
    pids: 32,
    disk_bytes: 64 << 20,
    timeout_seconds: 90,
};

/// A gateway, a node and its Docker.
pub struct DockerCluster {
    pub cluster: Cluster,
    pub client: Client,
    name: String,
    http: reqwest::Client,
    directory: TempDir,
}

impl Drop for DockerCluster {
    fn drop(&mut self) {
        let nodes = std::mem::take(&mut self.cluster.nodes);
        // A running node would restart the removed containers.
        block_in_place(|| {
            Handle::current().block_on(join_all(nodes.into_iter().map(aod_node::Node::stop)))
        });
        remove_everything_of(&self.name);
    }
}

impl DockerCluster {
    /// Starts a cluster with the capsules of these directories, which may call each other.
    pub async fn start(capsules: &[&str]) -> Self {
        Self::start_with_slots(capsules, SLOTS).await
    }

    /// As [`Self::start`], with `slots` slots, and at most four times as many containers.
    pub async fn start_with_slots(capsules: &[&str], slots: usize) -> Self {
        Self::begin(capsules, slots, &Needs::default(), |_| ()).await
    }

    /// As [`Self::start`], with capsules that all have these needs, on a node configured by `set`.
    pub async fn start_with_needs(
        capsules: &[&str],
        needs: &Needs,
        set: impl FnOnce(&mut Cluster),
    ) -> Self {
        Self::begin(capsules, SLOTS, needs, set).await
    }

    async fn begin(
        capsules: &[&str],
        slots: usize,
        needs: &Needs,
        set: impl FnOnce(&mut Cluster),
    ) -> Self {
        remove_abandoned();
        let mut cluster = Cluster::start(1).await;
        set(&mut cluster);
        let name = format!(
            "{CLUSTER_PREFIX}{}-{}",
            std::process::id(),
            uuid::Uuid::now_v7().simple()
        );
        let directory = tempfile::tempdir().expect("a directory for a test");
        let runtime = connect(&cluster, &name, directory.path(), 0).await;
        let broker = cluster.broker("registrar").await;
        let capacity = Capacity {
            slots,
            containers_max: 4 * slots,
            memory_bytes: 4 << 30,
        };
        cluster
            .add_node(&["any"], capacity, Arc::clone(&runtime) as _)
            .await;
        let this = Self {
            client: cluster.client(0),
            cluster,
            name,
            http: http_client(),
            directory,
        };
        join_all(
            capsules
                .iter()
                .map(|capsule| this.register(&broker, &runtime, capsule, needs)),
        )
        .await;
        this
    }

    /// Stops the first node, and starts another one, with directories of its own.
    pub async fn replace_node(&mut self) {
        self.cluster.nodes.remove(0).stop().await;
        let runtime = connect(&self.cluster, &self.name, self.directory.path(), 1).await;
        let capacity = Capacity {
            slots: SLOTS,
            containers_max: 4 * SLOTS,
            memory_bytes: 4 << 30,
        };
        self.cluster.add_node(&["any"], capacity, runtime).await;
    }

    /// Builds and registers the capsule of `tests/capsules/<name>`.
    async fn register(&self, broker: &Broker, runtime: &DockerRuntime, name: &str, needs: &Needs) {
        let directory = CapsuleDirectory::new(name);
        let package = self.directory.path().join(format!("{name}.tar"));
        fs::write(&package, directory.packed()).expect("a test file");
        let (progress, mut lines) = mpsc::channel(64);
        let drain = async { while lines.recv().await.is_some() {} };
        let tag = format!("aod/{name}:{}", self.name);
        let building = runtime.build_image(ImageBuild::new(package, name, &tag, progress));
        let (image, ()) = tokio::join!(building, drain);
        let schema =
            fs::read(directory.path().join("schema.json")).expect("a test capsule has a schema");
        let schema = serde_json::from_slice(&schema).expect("a schema is JSON");
        let schema = store_schema(self.cluster.artifacts.as_ref(), &schema).await;
        let mut registration = registration(name, schema);
        registration.image.config_digest = image.expect("the image is built");
        registration.resources = RESOURCES;
        registration.needs = needs.clone();
        append_registration(broker, registration).await;
    }

    /// `POST /v1/runs` with `files` by name: status and body.
    pub async fn post_run(&self, request: &Value, files: &[(&str, &[u8])]) -> (u16, Value) {
        let text = |text: String| Part::bytes(text.into_bytes());
        let form = files.iter().fold(
            Form::new().part("request", text(request.to_string())),
            |form, (name, bytes)| form.part((*name).to_owned(), Part::bytes(bytes.to_vec())),
        );
        let url = format!("{}/v1/runs", self.cluster.gateways[0].url());
        let response = self.http.post(url).multipart(form).send().await;
        let response = response.expect("the gateway answers");
        let status = response.status().as_u16();
        (status, response.json().await.expect("every answer is JSON"))
    }

    /// `POST /v1/capsules` with a packed directory of this name: status and body.
    pub async fn post_capsule(&self, directory: &str, package: Vec<u8>) -> (u16, Value) {
        let path = format!("/v1/capsules?directory={directory}");
        self.post_package(&path, package).await
    }

    /// Builds `tests/capsules/<path>` unchanged on a node, and registers it under the name of its directory, with
    /// `options` as further parameters of the request. The build may install packages.
    pub async fn build(&self, path: &str, options: &str) {
        self.build_directory(&CapsuleDirectory::as_it_stands(path), options)
            .await;
    }

    /// As [`Self::build`], for another directory.
    pub async fn build_directory(&self, capsule: &CapsuleDirectory, options: &str) {
        let path = format!("/v1/capsules?directory={}{options}", capsule.name());
        let (status, answer) = self.post_package(&path, capsule.packed()).await;
        assert_eq!(status, 201, "{answer:#}");
    }

    async fn post_package(&self, path: &str, package: Vec<u8>) -> (u16, Value) {
        let request = self
            .http
            .post(format!("{}{path}", self.cluster.gateways[0].url()))
            .timeout(BUILD_PATIENCE)
            .header("content-type", "application/x-tar");
        let response = request.body(package).send().await;
        let response = response.expect("the gateway answers");
        let status = response.status().as_u16();
        (status, response.json().await.expect("every answer is JSON"))
    }

    /// Uploads a file; returns its reference for `files` of a request.
    pub async fn upload(&self, text: &str) -> String {
        let url = format!("{}/v1/files", self.cluster.gateways[0].url());
        let response = self.http.post(url).body(text.to_owned()).send().await;
        let response = response.expect("the gateway answers");
        let uploaded: Value = response.json().await.expect("every answer is JSON");
        let file = uploaded["file"].as_str();
        file.unwrap_or_else(|| panic!("{uploaded}")).to_owned()
    }

    /// `POST` of JSON to a gateway: status and body.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}{path}", self.cluster.gateways[0].url());
        let response = self.http.post(url).json(body).send().await;
        let response = response.expect("the gateway answers");
        let status = response.status().as_u16();
        (status, response.json().await.expect("every answer is JSON"))
    }

    /// Starts the capsule `probe` with `script`; `options` are further fields of the request.
    pub async fn start_script(&self, script: &str, options: Value) -> String {
        let mut request = json!({"capsule": "probe"});
        let fields = request.as_object_mut().expect("an object");
        fields.extend(options.as_object().cloned().unwrap_or_default());
        let (status, view) = self
            .post_run(&request, &[("script.sh", script.as_bytes())])
            .await;
        assert_eq!(status, 202, "{view}");
        view["id"].as_str().expect("a run has an id").to_owned()
    }

    /// Runs the capsule `probe` with `script` to its end; returns its result.
    pub async fn run_script(&self, script: &str) -> Value {
        let run = self.start_script(script, json!({})).await;
        self.client.result(&run).await
    }

    /// The engine's JSON about the containers of this cluster.
    pub fn inspect_containers(&self) -> String {
        let filter = format!("label={CLUSTER_LABEL}={}", self.name);
        let containers = docker(&["ps", "-aq", "--filter", &filter]);
        let containers: Vec<&str> = containers.lines().collect();
        docker(&[&["inspect"], containers.as_slice()].concat())
    }

    /// Creates the file `path` in every container of the cluster: a capsule that waits for it goes on.
    pub fn touch_in_containers(&self, path: &str) {
        let filter = format!("label={CLUSTER_LABEL}={}", self.name);
        for container in docker(&["ps", "-q", "--filter", &filter]).lines() {
            docker(&["exec", container, "touch", path]);
        }
    }

    /// The output file `name` of `run`, as text.
    pub async fn file(&self, run: &str, name: &str) -> String {
        let url = format!(
            "{}/v1/runs/{run}/files/{name}",
            self.cluster.gateways[0].url()
        );
        let response = self
            .http
            .get(url)
            .send()
            .await
            .expect("the gateway answers");
        let status = response.status();
        let text = response.text().await.expect("a body");
        assert!(status.is_success(), "{status}: {text}");
        text
    }

    /// Cancels `run`.
    pub async fn cancel(&self, run: &str) {
        let url = format!("{}/v1/runs/{run}/cancel", self.cluster.gateways[0].url());
        let response = self
            .http
            .post(url)
            .send()
            .await
            .expect("the gateway answers");
        assert_eq!(response.status().as_u16(), 202);
    }

    /// Waits until `run` has printed `line`.
    pub async fn wait_for_line(&self, run: &str, line: &str) {
        let path = format!("/v1/runs/{run}/logs");
        eventually(&format!("{line:?} of {run}"), async || {
            let (_, page) = self.client.get(&path).await;
            let mut lines = page["items"].as_array().into_iter().flatten();
            lines.any(|item| item["text"] == line)
        })
        .await;
    }

    /// The node's directory of the first attempt of `run`.
    pub fn directory_of_run(&self, run: &str) -> PathBuf {
        let token = run.strip_prefix("run_").expect("the id of a run");
        self.cluster
            .data("node-0")
            .join("runs")
            .join(format!("{token}-1"))
    }
}

fn http_client() -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy().timeout(PATIENCE);
    builder.build().expect("an HTTP client")
}

/// The runtime of the next node.
async fn connect(
    cluster: &Cluster,
    name: &str,
    directory: &Path,
    node: usize,
) -> Arc<DockerRuntime> {
    let programs = directory.join(format!("bin-{node}"));
    fs::create_dir(&programs).expect("a test directory");
    let gate = programs.join("aod-gate");
    fs::write(&gate, GATE_BINARY).expect("a test file");
    for path in [&programs, &gate] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a test path");
    }
    let data = cluster.data(&format!("node-{node}"));
    let id = load_or_draw(&data, &SystemClock).expect("a data directory");
    let config = aod_docker::Config::new(
        ENGINE.into(),
        name.to_owned(),
        id,
        programs,
        directory.join(format!("hosts-{node}")),
    );
    let runtime = DockerRuntime::connect(config).await;
    Arc::new(runtime.expect("Docker answers"))
}

/// The output of the docker command.
fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output();
    let output = output.expect("the docker command is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Removes the containers of a cluster, then its images.
fn remove_everything_of(cluster: &str) {
    let filter = format!("label={CLUSTER_LABEL}={cluster}");
    for container in docker(&["ps", "-aq", "--filter", &filter]).lines() {
        docker(&["rm", "-fv", container]);
    }
    for image in docker(&["images", "-q", "--no-trunc", "--filter", &filter]).lines() {
        docker(&["rmi", "-f", image]);
    }
}

/// Removes the leftovers of killed tests.
fn remove_abandoned() {
    let filter = format!("label={CLUSTER_LABEL}");
    let format = format!("{{{{index .Config.Labels \"{CLUSTER_LABEL}\"}}}}");
    let containers = docker(&["ps", "-aq", "--filter", &filter]);
    let images = docker(&["images", "-q", "--no-trunc", "--filter", &filter]);
    let clusters: BTreeMap<String, u32> = containers
        .lines()
        .chain(images.lines())
        .map(|id| docker(&["inspect", "-f", &format, id]).trim().to_owned())
        .filter_map(|cluster| {
            let process = cluster
                .strip_prefix(CLUSTER_PREFIX)?
                .split('-')
                .next()?
                .parse()
                .ok()?;
            Some((cluster, process))
        })
        .collect();
    for (cluster, process) in clusters {
        if !Path::new(&format!("/proc/{process}")).exists() {
            remove_everything_of(&cluster);
        }
    }
}
