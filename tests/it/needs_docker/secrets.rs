//! Secrets of a run: where its capsule finds them, and where they must not appear.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use aod_domain::capsule::Needs;
use aod_domain::manifest::Secret;
use aod_domain::tenant::Tenant;
use aod_ports::secrets::{NoSecrets, SecretError, SecretStore, SecretValue};
use aod_tests::docker_cluster::DockerCluster;
use async_trait::async_trait;
use serde_json::json;

const VALUE: &str = "open-sesame-8c2f";

/// The secrets of these tests.
#[derive(Debug)]
struct Kept(BTreeMap<&'static str, &'static str>);

#[async_trait]
impl SecretStore for Kept {
    async fn get(&self, tenant: &Tenant, name: &str) -> Result<SecretValue, SecretError> {
        match self.0.get(name) {
            Some(value) => Ok(SecretValue::new((*value).to_owned())),
            None => NoSecrets.get(tenant, name).await,
        }
    }
}

fn secret(name: &str, env: &str, required: bool) -> Secret {
    Secret {
        name: name.to_owned(),
        env: env.to_owned(),
        required,
    }
}

async fn cluster(secrets: Vec<Secret>) -> DockerCluster {
    let variables = [("MODE", "fast"), ("AOD_RUN_ID", "another's")];
    let needs = Needs {
        secrets,
        env: variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..Needs::default()
    };
    DockerCluster::start_with_needs(&["probe"], &needs, |cluster| {
        cluster.secrets = Arc::new(Kept(BTreeMap::from([("KEY", VALUE)])));
    })
    .await
}

/// Reads the secret, waits for the test to inspect the container, and prints the secret everywhere.
const SCRIPT: &str = r#"
{
    echo "$API_KEY_FILE: $(cat "$API_KEY_FILE"), $(stat -c '%a %u' "$API_KEY_FILE")"
    grep ' /run/secrets ' /proc/mounts | cut -d ' ' -f 1-3
    grep ' /run/secrets ' /proc/mounts | grep -oE 'nosuid|nodev|noexec' | tr '\n' ' '
    ls /run/secrets
    env | grep -c -e OTHER -e sesame
    echo "$MODE, $(echo "$AOD_RUN_ID" | cut -c 1-4)"
    if echo x 2>/dev/null >"$API_KEY_FILE"; then echo "written to"; fi
} >/io/output/report.txt
key="$(cat "$API_KEY_FILE")"
printf 'the key is %s' "$(echo "$key" | cut -c 1-7)"
sleep 1
echo "$(echo "$key" | cut -c 8-), they say"
echo "again: $key" >&2
echo looking
until [ -e /tmp/searched ]; do sleep 0.1; done
printf '{"report": "report.txt", "key": "%s", "list": ["x%sx"], "error": {"code": "told", "message": "it is %s", "detail": {"key": "%s"}}}' \
    "$key" "$key" "$key" "$key" | answer
exit 1
"#;

/// Files below the node's directory that contain the value, except those of the capsule itself.
fn files_with_value(directory: &std::path::Path) -> Vec<String> {
    let output = Command::new("grep")
        .args(["-rlaF", VALUE])
        .arg(directory)
        .output();
    let output = output.expect("the command grep is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_a_file_in_memory_and_never_stored() {
    let wanted = vec![
        secret("KEY", "API_KEY", true),
        secret("OTHER", "OTHER", false),
    ];
    let cluster = cluster(wanted).await;
    let run = cluster.start_script(SCRIPT, json!({})).await;
    cluster.wait_for_line(&run, "looking").await;
    let inspected = cluster.inspect_containers();
    assert!(inspected.contains("/run/secrets"), "{inspected}");
    assert!(!inspected.contains(VALUE), "the engine knows it");
    let on_disk = files_with_value(&cluster.directory_of_run(&run));
    assert!(
        on_disk.iter().all(|path| path.ends_with("/report.txt")),
        "{on_disk:?}"
    );
    cluster.touch_in_containers("/tmp/searched");

    let result = cluster.client.result(&run).await;
    assert_eq!(result["state"], "failed", "{result}");
    let told = result.to_string();
    assert!(!told.contains(VALUE), "{told}");
    assert_eq!(result["output"]["key"], "***");
    assert_eq!(result["output"]["list"], json!(["x***x"]));
    assert_eq!(result["error"]["code"], "told");
    assert_eq!(result["error"]["message"], "it is ***");
    assert_eq!(result["error"]["detail"], json!({"key": "***"}));

    // Files belong to the capsule and stay unchanged.
    let report = cluster.file(&run, "report.txt").await;
    let expected = format!(
        "/run/secrets/KEY: {VALUE}, 400 65534\ntmpfs /run/secrets tmpfs\nnosuid nodev noexec KEY\n0\nfast, run_\n"
    );
    assert_eq!(report, expected);

    for path in ["logs", "events"] {
        let (_, page) = cluster.client.get(&format!("/v1/runs/{run}/{path}")).await;
        assert!(!page.to_string().contains(VALUE), "{path}: {page}");
        assert!(page.to_string().contains("***"), "{path}: {page}");
    }
    let (_, page) = cluster.client.get(&format!("/v1/runs/{run}/logs")).await;
    let lines = page["items"].as_array().expect("a run has lines").iter();
    let lines: Vec<_> = lines.filter_map(|line| line["text"].as_str()).collect();
    assert!(lines.contains(&"the key is ***, they say"), "{lines:?}");
    assert!(lines.contains(&"again: ***"), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_missing_secret_fails_before_its_container_starts() {
    let wanted = vec![
        secret("KEY", "KEY", true),
        secret("FIRST", "FIRST", true),
        secret("SECOND", "SECOND", true),
        secret("THIRD", "THIRD", false),
    ];
    let cluster = cluster(wanted).await;
    let result = cluster.run_script("echo began").await;
    assert_eq!(result["error"]["code"], "secret_missing", "{result}");
    assert_eq!(
        result["error"]["detail"]["secrets"],
        json!(["FIRST", "SECOND"])
    );
    assert_eq!(result["attempt"], 1);
    assert_eq!(result["timings"]["started_at"], json!(null));
    let message = result["error"]["message"].as_str().expect("a message");
    for expected in [
        "the operator of the node node-0",
        "FIRST: ",
        "SECOND: ",
        "--secrets",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    assert!(
        !message.contains("KEY") && !message.contains("THIRD"),
        "{message}"
    );
}
