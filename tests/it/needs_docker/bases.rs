//! Base images of capsules: pinned by the registered version, and updated on request.

use std::path::Path;
use std::process::Command;

use aod_tests::docker_cluster::DockerCluster;
use aod_tests::images::CapsuleDirectory;
use serde_json::Value;
use uuid::Uuid;

/// The label of base images, and of all images that are based on them.
const LABEL: &str = "dev.aod.test-base";

fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output();
    let output = output.expect("docker is installed");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A reference on this engine, for which no registry has an image; removed with its images on drop.
struct Reference(String);

impl Drop for Reference {
    fn drop(&mut self) {
        let label = format!("label={LABEL}={}", self.0);
        for image in docker(&["images", "-aq", "--no-trunc", "--filter", &label]).lines() {
            docker(&["rmi", "-f", image]);
        }
    }
}

impl Reference {
    fn new() -> Self {
        Self(format!("aod-test-base-{}:1", Uuid::now_v7().simple()))
    }

    /// Lets the reference refer to a new image with the files of `tar`; returns the id of the image.
    fn renew(&self, tar: &Path) -> String {
        let label = format!("LABEL {LABEL}={}", self.0);
        let tar = tar.to_str().expect("a test path");
        let id = docker(&["import", "-c", &label, tar, &self.0]);
        assert!(id.starts_with("sha256:"), "{id}");
        id
    }
}

/// The lines of a build's output about base images.
async fn lines(cluster: &DockerCluster, registered: &Value) -> Vec<String> {
    let build = registered["build"].as_str().expect("it was built");
    let path = format!("/v1/runs/{build}/logs");
    let (_, page) = cluster.client.get(&path).await;
    let items = page["items"].as_array().into_iter().flatten();
    let lines = items.filter_map(|item| item["text"].as_str());
    lines
        .filter(|line| line.to_lowercase().contains("base image"))
        .map(str::to_owned)
        .collect()
}

/// The digests of the first `count` layers of the image of the capsule `worker`.
async fn layers(cluster: &DockerCluster, count: usize) -> Vec<Value> {
    let (_, shown) = cluster.client.get("/v1/capsules/worker").await;
    let items = shown["layers"]["items"].as_array().expect("it has layers");
    let digests = items.iter().map(|item| item["digest"].clone());
    digests.take(count).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn next_version_has_the_base_image_of_the_registered_one_until_its_update() {
    let cluster = DockerCluster::start(&[]).await;
    let capsule = CapsuleDirectory::new("worker");
    let reference = Reference::new();
    let tar = capsule.path().join("rootfs.tar");
    let first = reference.renew(&tar);
    // Only a reused step has the same random bytes.
    let random = "RUN [\"/bin/busybox\", \"dd\", \"if=/dev/urandom\", \"of=/random\", \"bs=1024\", \"count=1\"]";
    let dockerfile = format!(
        "ARG NAME={}\nFROM $NAME AS base\nFROM base\n{random}\nCOPY run.sh /run.sh\nCMD [\"/bin/sh\", \"/run.sh\"]\n",
        reference.0
    );
    capsule.write("Dockerfile", &dockerfile);
    let build = async |options: &str| {
        let directory = format!("worker{options}");
        let (status, answer) = cluster.post_capsule(&directory, capsule.packed()).await;
        assert!(matches!(status, 200 | 201), "{answer:#}");
        let base = &answer["bases"][0];
        assert_eq!(base["reference"], reference.0.as_str(), "{answer:#}");
        answer
    };
    let base_of = |answer: &Value| answer["bases"][0]["image"].as_str().map(str::to_owned);
    let short = |id: &str| id["sha256:".len()..][..12].to_owned();

    let one = build("").await;
    assert_eq!(base_of(&one).as_ref(), Some(&first));
    assert_eq!(one["bases"][0]["is_stored"], true, "{one:#}");
    let shared = layers(&cluster, 2).await;
    let prefix = format!("Base image {}: {}", reference.0, short(&first));
    let new = format!("{prefix}, new; later versions use it, too");
    assert_eq!(lines(&cluster, &one).await, [new]);

    // The reference moves on, and the engine is like that of another node: it has neither base nor version.
    let second = reference.renew(&tar);
    docker(&["rmi", "-f", one["image"].as_str().expect("an id")]);
    docker(&["rmi", "-f", &first]);
    let inspected = docker(&["inspect", "--type", "image", &first]);
    assert_eq!(inspected, "[]", "the base is gone");
    capsule.write("run.sh", "echo the second version\n");
    let two = build("").await;
    assert_eq!(base_of(&two).as_ref(), Some(&first));
    assert_eq!(layers(&cluster, 2).await, shared);
    assert_ne!(two["image"], one["image"]);
    let pinned = format!(
        "{prefix}, pinned by the registered version; the name now refers to {} on this node: use --update-bases to \
         update",
        short(&second)
    );
    assert_eq!(lines(&cluster, &two).await, [pinned]);

    let three = build("&bases=update").await;
    assert_eq!(base_of(&three).as_ref(), Some(&second));
    assert_ne!(layers(&cluster, 2).await, shared);
    let told = lines(&cluster, &three).await;
    let updated = format!(
        "Base image {}: {}, updated from {}",
        reference.0,
        short(&second),
        short(&first)
    );
    assert_eq!(told.last(), Some(&updated), "{told:?}");
    let same = build("").await;
    assert_eq!(
        (&same["is_unchanged"], base_of(&same)),
        (&Value::Bool(true), Some(second))
    );
}
