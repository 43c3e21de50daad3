//! Files that only root can put into a capsule's directories: devices, links to other files, and files larger than the
//! capsule's limits. The node must accept none of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use aod_tests::client::eventually;
use aod_tests::docker_cluster::DockerCluster;
use serde_json::{Value, json};

use super::redaction::redacted;

/// A file that no capsule may read.
const SECRET: &str = "{\"secret\": \"of the host\"}";

/// The start of scripts: prints that it waits, and continues when everything is planted.
const WAIT: &str = "
touch $OUTGOING/waiting
until [ -e $OUTGOING/planted ]; do sleep 0.1; done
";

/// Hands over the planted files.
const CALLS: &str = r#"
{
    printf '{"character device": %s' "$(call reader '{"file": "zero"}')"
    printf ', "block device": %s' "$(call reader '{"file": "disk"}')"
    printf ', "hard link": %s' "$(call reader '{"file": "secret"}')"
    printf ', "1 TiB without content": %s' "$(call reader '{"file": "huge"}')"
    printf ', "device in a directory": %s}' "$(call reader '{"file": "directory"}')"
} | answer
"#;

/// Where files can be planted.
struct Planting<'a> {
    run: &'a Path,
    secret: &'a Path,
}

impl Planting<'_> {
    fn device(&self, name: &str, kind: &str, major: &str, minor: &str) {
        let path = self.run.join(name);
        let status = Command::new("mknod")
            .arg(path)
            .args([kind, major, minor])
            .status();
        assert!(
            status.expect("mknod is installed").success(),
            "only root makes devices"
        );
    }

    fn link(&self, name: &str) {
        fs::hard_link(self.secret, self.run.join(name)).expect("root may link every file");
    }

    fn huge(&self, name: &str) {
        let file = File::create(self.run.join(name)).expect("root may write everywhere");
        file.set_len(1 << 40).expect("a file system with holes");
    }
}

/// Runs `script` with the files that `plant` puts into the directories of its run on the host.
async fn planted(cluster: &DockerCluster, script: &str, plant: impl Fn(&Planting<'_>)) -> Value {
    let run = cluster
        .start_script(&format!("{WAIT}{script}"), json!({}))
        .await;
    let directory = cluster.directory_of_run(&run);
    let outgoing = directory.join("io/handoff/outgoing");
    eventually("a capsule that waits", async || {
        outgoing.join("waiting").exists()
    })
    .await;
    // On the file system of the run, but outside its directories.
    let secret = directory.with_extension("secret");
    fs::write(&secret, SECRET).expect("a directory of the test");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("a test file");
    plant(&Planting {
        run: &directory,
        secret: &secret,
    });
    File::create(outgoing.join("planted")).expect("root may write everywhere");
    let result = cluster.client.result(&run).await;
    fs::remove_file(secret).expect("a test file");
    assert!(
        !result.to_string().contains("of the host"),
        "the secret is out: {result}"
    );
    redacted(result)
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_devices_links_and_huge_files_are_never_accepted() {
    let cluster = DockerCluster::start(&["probe", "reader"]).await;
    let cluster = &cluster;
    let answered = "echo '{}' | answer";
    let (calls, device, link, huge, answer) = tokio::join!(
        planted(cluster, CALLS, |planting| {
            planting.device("io/handoff/outgoing/zero", "c", "1", "5");
            planting.device("io/handoff/outgoing/disk", "b", "7", "0");
            planting.link("io/handoff/outgoing/secret");
            planting.huge("io/handoff/outgoing/huge");
            fs::create_dir(planting.run.join("io/handoff/outgoing/directory")).expect("a new name");
            planting.device("io/handoff/outgoing/directory/zero", "c", "1", "5");
        }),
        planted(cluster, answered, |planting| planting.device(
            "io/output/zero",
            "c",
            "1",
            "5"
        )),
        planted(cluster, answered, |planting| planting
            .link("io/output/secret.json")),
        planted(cluster, answered, |planting| planting
            .huge("io/output/huge")),
        planted(cluster, "true", |planting| planting.link("io/output.json")),
    );
    let results = BTreeMap::from([
        ("handed over", calls),
        ("device among the outputs", device),
        ("hard link among the outputs", link),
        ("1 TiB without content among the outputs", huge),
        ("hard link as the answer", answer),
    ]);
    insta::assert_json_snapshot!("planted", results);
}
