//! Shared by the parts with containers: a cluster on this machine's Docker, a capsule with one static program, and the
//! same container without the product.
//!
//! The bare container is derived from one created by the product, without the gate and its two mounts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::docker::Docker;
use crate::program::aod;
use crate::site::{Client, Site};

/// The measured capsule, which returns its arguments.
pub(super) const COPY: &str = "bench-copy";

/// A capsule of the same image that stays alive for inspection.
const HOLD: &str = "bench-hold";

/// A static program that can copy a file. Source: Debian's package `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

/// Maximum time for containers to appear and to be removed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Number of workers and of the node's slots. Source: the bound on launches.
pub(super) const WORKERS: usize = 4;

/// A cluster on Docker; its containers and images are removed with it.
pub(super) struct Bed {
    pub(super) site: Site,
    /// The body that creates the bare container.
    pub(super) bare: Value,
    label: String,
    _leftovers: Leftovers,
}

/// Removes containers and images by their label.
struct Leftovers(String);

impl Drop for Leftovers {
    fn drop(&mut self) {
        let filter = format!("label={}", self.0);
        for (list, remove) in [
            (&["ps", "-aq"][..], &["rm", "-fv"][..]),
            (&["images", "-aq"], &["rmi", "-f"]),
        ] {
            let found = docker_command(&[list, &["--no-trunc", "--filter", &filter]].concat());
            let ids: Vec<&str> = found.split_whitespace().collect();
            if !ids.is_empty() {
                docker_command(&[remove, &ids].concat());
            }
        }
    }
}

fn docker_command(arguments: &[&str]) -> String {
    let output = Command::new("docker")
        .args(arguments)
        .stderr(Stdio::null())
        .output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

impl Bed {
    pub(super) async fn make() -> anyhow::Result<Self> {
        let cluster = format!("bench-{}", uuid::Uuid::now_v7().simple());
        let label = format!("dev.aod.cluster={cluster}");
        let leftovers = Leftovers(label.clone());
        let mut site = Site::start(None).await?;
        site.add_docker_node(&cluster, WORKERS)?;
        site.wait_for_nodes().await?;
        build(
            &site,
            COPY,
            r#"["/busybox", "dd", "if=/io/input.json", "of=/io/output.json", "status=none"]"#,
        )?;
        build(&site, HOLD, r#"["/busybox", "sleep", "60"]"#)?;
        let bare = bare_body(&site, &label).await?;
        let bed = Self {
            site,
            bare,
            label,
            _leftovers: leftovers,
        };
        bed.wait_for_removal(&mut Docker::connect().await?).await?;
        Ok(bed)
    }

    /// One run of the product.
    pub(super) async fn run(&self, client: &mut Client) -> anyhow::Result<()> {
        let output = client.run(COPY, &arguments()).await?;
        anyhow::ensure!(output == arguments(), "the capsule answered {output}");
        Ok(())
    }

    /// Waits until the engine has no container of the product.
    pub(super) async fn wait_for_removal(&self, docker: &mut Docker) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !docker.list(&[&self.label]).await?.is_empty() {
            anyhow::ensure!(
                Instant::now() < deadline,
                "containers of the product remain"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

fn arguments() -> Value {
    json!({"word": "hello"})
}

/// Builds a capsule that contains only the program, as its author would.
fn build(site: &Site, name: &str, entrypoint: &str) -> anyhow::Result<()> {
    let directory = site.path().join(name);
    fs::create_dir(&directory)?;
    fs::copy(BUSYBOX, directory.join("busybox"))
        .with_context(|| format!("{BUSYBOX} (package busybox-static)"))?;
    let dockerfile = format!("FROM scratch\nCOPY busybox /busybox\nENTRYPOINT {entrypoint}\n");
    fs::write(directory.join("Dockerfile"), dockerfile)?;
    let word =
        json!({"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]});
    fs::write(
        directory.join("schema.json"),
        json!({"input": word, "output": word}).to_string(),
    )?;
    let output = Command::new(aod()?)
        .args(["capsule", "build", "--url", &site.url()])
        .arg(&directory)
        .env_remove("AOD_TOKEN_FILE")
        .output()?;
    anyhow::ensure!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Inspects a container of the product, and returns the request for the same one without it.
async fn bare_body(site: &Site, label: &str) -> anyhow::Result<Value> {
    let (mut client, mut docker) = (site.client().await?, Docker::connect().await?);
    let run = client.start(HOLD, &arguments()).await?;
    let deadline = Instant::now() + PATIENCE;
    let seen = loop {
        let found = docker
            .list(&[label, &format!("dev.aod.capsule={HOLD}")])
            .await?;
        if let Some(id) = found.first() {
            // The engine lists containers that it is still creating, and does not find them yet.
            let seen = docker
                .ask("GET", &format!("/containers/{id}/json"), None)
                .await;
            if let Some(seen) = seen.ok().filter(|seen| seen["State"]["Running"] == true) {
                break seen;
            }
        }
        anyhow::ensure!(Instant::now() < deadline, "no container was started");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let image = image_of(&mut docker, label).await?;
    let body = without_gate(&seen, &image, &site.path().join("bare"))?;
    client.cancel(&run).await?;
    Ok(body)
}

/// The id of the image of [`COPY`].
async fn image_of(docker: &mut Docker, label: &str) -> anyhow::Result<String> {
    let images = docker.ask("GET", "/images/json?all=1", None).await?;
    let images = images.as_array().context("a list is a list")?;
    let (name, value) = label.split_once('=').context("a label has a value")?;
    let image = images
        .iter()
        .find(|image| image["Labels"][name] == value && image["Labels"]["dev.aod.name"] == COPY);
    let id = image.and_then(|image| image["Id"].as_str());
    Ok(id
        .with_context(|| format!("there is no image of {COPY}"))?
        .to_owned())
}

/// The request that creates the container `seen` again from `image`, with the image's own command, on directories
/// below `own`.
fn without_gate(seen: &Value, image: &str, own: &Path) -> anyhow::Result<Value> {
    let (config, mut host_config) = (&seen["Config"], seen["HostConfig"].clone());
    let mounts = host_config["Mounts"]
        .as_array()
        .context("the product mounts directories")?
        .clone();
    let mut kept = Vec::new();
    for (index, mut mount) in mounts.into_iter().enumerate() {
        let target = mount["Target"].as_str().unwrap_or_default();
        if target.starts_with("/.aod") {
            continue;
        }
        if mount["Type"] == "bind" {
            let source = PathBuf::from(mount["Source"].as_str().context("a bind has a source")?);
            mount["Source"] = copy_of(&source, &own.join(index.to_string()))?.into();
        }
        kept.push(mount);
    }
    host_config["Mounts"] = Value::Array(kept);
    Ok(json!({
        "Image": image,
        "Hostname": config["Hostname"],
        "User": config["User"],
        "NetworkDisabled": config["NetworkDisabled"],
        "Healthcheck": config["Healthcheck"],
        "HostConfig": host_config,
    }))
}

/// A file or directory like `source`, with the initial content for a capsule.
fn copy_of(source: &Path, path: &Path) -> anyhow::Result<String> {
    if source.is_file() {
        fs::create_dir_all(path.parent().context("it lies in a directory")?)?;
        fs::copy(source, path)?;
    } else {
        fs::create_dir_all(path)?;
        let points = [
            "input",
            "output",
            "handoff/outgoing",
            "handoff/incoming",
            "outgoing",
            "incoming",
        ];
        for point in points.iter().filter(|point| source.join(point).is_dir()) {
            fs::create_dir_all(path.join(point))?;
        }
        if source.join("input.json").is_file() {
            fs::write(path.join("input.json"), "")?;
        }
        let mode = fs::metadata(source)?.permissions().mode();
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(path.to_str().context("test paths are text")?.to_owned())
}
