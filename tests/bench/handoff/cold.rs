//! A cold handoff: from the request at the gateway to the result, with a new container; compared with the bare cycle
//! of the same container, and with `docker run`.

use std::process::Stdio;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::Value;
use tokio::process::Command;

use super::containers::Bed;
use super::control_plane::milliseconds;
use crate::docker::Docker;
use crate::report::Measurement;

const PAIRS: usize = 60;

const WARM_UP_PAIRS: usize = 5;

pub(super) async fn measure() -> anyhow::Result<Vec<Measurement>> {
    let bed = Bed::make().await?;
    let (mut client, mut docker) = (bed.site.client().await?, Docker::connect().await?);
    let run_arguments = run_arguments(&bed.bare)?;
    let [mut cold, mut bare, mut command] = [const { Vec::new() }; 3];
    for _ in 0..WARM_UP_PAIRS + PAIRS {
        let began = Instant::now();
        bed.run(&mut client).await?;
        cold.push(milliseconds(began));
        bed.wait_for_removal(&mut docker).await?;
        bare.push(cycle(&mut docker, &bed.bare).await?);
        command.push(docker_run(&run_arguments).await?);
    }
    for samples in [&mut cold, &mut bare, &mut command] {
        samples.drain(..WARM_UP_PAIRS);
    }
    Ok(vec![
        Measurement::new("cold_handoff", "ms", &cold)?
            .beside("docker_api_cycle", &cold, &bare)?
            .bounded("ratio <= 0.95")?
            .noted("POST /v1/runs to its result, no network, static program, image local, sync always; the floor is create, start, wait with the same HostConfig, without the gate and its mounts"),
        Measurement::new("cold_handoff_beside_docker_run", "ms", &cold)?
            .beside("docker_run_rm", &cold, &command)?
            .noted("docker run --rm --network none with the same user, mounts and limits; it removes the container before it returns, the product after"),
    ])
}

/// Create, start and wait with the bare API; the removal is not counted, as in the product.
async fn cycle(docker: &mut Docker, body: &Value) -> anyhow::Result<f64> {
    let began = Instant::now();
    let id = docker.create(body).await?;
    docker.start(&id).await?;
    docker.wait(&id).await?;
    let took = milliseconds(began);
    docker.remove(&id).await?;
    Ok(took)
}

async fn docker_run(arguments: &[String]) -> anyhow::Result<f64> {
    let began = Instant::now();
    let status = Command::new("docker")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .await?;
    anyhow::ensure!(status.success(), "docker run ended with {status}");
    Ok(milliseconds(began))
}

/// The container of `body` as arguments of the docker command.
fn run_arguments(body: &Value) -> anyhow::Result<Vec<String>> {
    let host_config = &body["HostConfig"];
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
    let mut arguments: Vec<String> = [
        "run",
        "--rm",
        "--network",
        "none",
        "--read-only",
        "--cap-drop",
        "ALL",
    ]
    .into_iter()
    .chain([
        "--security-opt",
        "no-new-privileges:true",
        "--no-healthcheck",
    ])
    .map(str::to_owned)
    .collect();
    arguments.extend([
        format!("--user={}", text(&body["User"])?),
        format!("--memory={}", host_config["Memory"]),
    ]);
    arguments.extend([
        format!("--memory-swap={}", host_config["MemorySwap"]),
        format!("--pids-limit={}", host_config["PidsLimit"]),
    ]);
    for mount in host_config["Mounts"].as_array().into_iter().flatten() {
        let target = text(&mount["Target"])?;
        if mount["Type"] == "bind" {
            let read_only = if mount["ReadOnly"] == true {
                ",readonly"
            } else {
                ""
            };
            let source = text(&mount["Source"])?;
            arguments.push(format!(
                "--mount=type=bind,source={source},target={target}{read_only}"
            ));
        } else {
            arguments.push(format!("--mount=type=tmpfs,target={target}"));
        }
    }
    arguments.push(text(&body["Image"])?);
    Ok(arguments)
}
