//! Describes the engine: its weaknesses, and unsupported kinds of engines.

use std::path::PathBuf;

use aod_ports::container_runtime::{EngineInfo, RuntimeError};
use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion};
use thiserror::Error;
use tokio::time::Instant;

use crate::engine::Engine;

/// The oldest engine without the known escapes from a container during build and start. Source:
/// CVE-2024-21626 and its companions, fixed in Docker 25.0.2.
const ENGINE_VERSION_MIN: [u64; 3] = [25, 0, 2];

/// The oldest tested engine.
const ENGINE_VERSION_SUPPORTED: [u64; 3] = [20, 10, 0];

/// A kind of engine on which files, users or limits do not behave as AOD requires.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{kind} is not supported: {reason}")]
pub struct UnsupportedEngine {
    /// The name of the kind.
    pub kind: &'static str,
    /// Why AOD does not support the kind, and what to use instead.
    pub reason: &'static str,
}

/// The node does not use the engine for now, because the last calls timed out.
#[derive(Debug, Error)]
#[error("the last {timeouts} calls to the engine timed out; check Docker on this host")]
pub(crate) struct Hanging {
    timeouts: u32,
}

/// Asks the engine for its version and settings.
pub(crate) async fn describe(engine: &Engine) -> Result<EngineInfo, RuntimeError> {
    ensure_answering(engine)?;
    let action = "reading the engine's version and settings";
    let version = engine.query(engine.docker.version());
    let info = engine.query(engine.docker.info());
    let (version, info) = tokio::try_join!(version, info).map_err(|error| error.during(action))?;
    if let Some(unsupported) = unsupported(&info) {
        return Err(RuntimeError::Engine {
            action,
            source: Box::new(unsupported),
        });
    }
    Ok(EngineInfo {
        warnings: warnings(&version, &info),
        version: version.version.unwrap_or_default(),
        architecture: info.architecture.unwrap_or_default(),
        cpus: info
            .ncpu
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(1),
        memory_bytes: info
            .mem_total
            .and_then(|bytes| u64::try_from(bytes).ok())
            .unwrap_or(0),
        directory: info.docker_root_dir.map(PathBuf::from),
    })
}

/// Fails while the engine hangs.
pub(crate) fn ensure_answering(engine: &Engine) -> Result<(), RuntimeError> {
    match engine.breaker.is_open(Instant::now()) {
        None => Ok(()),
        Some(timeouts) => Err(RuntimeError::Engine {
            action: "waiting for the engine",
            source: Box::new(Hanging { timeouts }),
        }),
    }
}

fn has_security_option(info: &SystemInfo, name: &str) -> bool {
    let options = info.security_options.iter().flatten();
    options
        .flat_map(|option| option.split(','))
        .any(|part| part == format!("name={name}"))
}

/// The first property of the engine that AOD does not support.
fn unsupported(info: &SystemInfo) -> Option<UnsupportedEngine> {
    let system = info.operating_system.as_deref().unwrap_or_default();
    let refuse = |kind, reason| Some(UnsupportedEngine { kind, reason });
    if info
        .os_type
        .as_deref()
        .is_some_and(|system| system != "linux")
    {
        return refuse(
            "an engine on a system other than Linux",
            "capsules are Linux programs",
        );
    }
    if system.contains("Docker Desktop") {
        return refuse(
            "Docker Desktop",
            "its containers cannot reach this host's sockets; use Docker Engine on a Linux machine",
        );
    }
    if has_security_option(info, "rootless") {
        return refuse(
            "rootless Docker",
            "its user ids differ from the host's; use an engine that runs as root",
        );
    }
    if has_security_option(info, "userns") {
        return refuse(
            "userns-remap",
            "its user ids differ from the host's; use an engine without userns-remap",
        );
    }
    if has_security_option(info, "selinux") {
        return refuse(
            "SELinux in enforcing mode",
            "AOD sets no SELinux labels on the directories of runs; use an engine without --selinux-enabled",
        );
    }
    None
}

fn warnings(version: &SystemVersion, info: &SystemInfo) -> Vec<String> {
    let mut warnings = Vec::new();
    let engine = version.version.as_deref().unwrap_or_default();
    if numbers(engine) < ENGINE_VERSION_SUPPORTED {
        warnings.push(format!(
            "Docker {engine} is older than 20.10, the oldest tested version"
        ));
    } else if numbers(engine) < ENGINE_VERSION_MIN {
        warnings.push(format!(
            "Docker {engine} is older than 25.0.2: it may lack the fixes of CVE-2024-21626 and its companions"
        ));
    }
    if let Some(runc) = runc_version(version)
        && is_vulnerable_runc(numbers(&runc))
    {
        warnings.push(format!(
            "runc {runc} may lack the fixes of CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881; 1.2.8, 1.3.3 and newer have them"
        ));
    }
    let is_old_cgroup = info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_1);
    if is_old_cgroup && info.swap_limit != Some(true) {
        warnings.push(
            "cgroup v1 without swap accounting: a capsule's memory limit does not bound its swap"
                .into(),
        );
    }
    for (enforced, what) in [
        (info.memory_limit, "memory"),
        (info.cpu_cfs_quota, "processor time"),
        (info.pids_limit, "the number of processes"),
    ] {
        if enforced == Some(false) {
            warnings.push(format!("this engine cannot limit {what} of a capsule"));
        }
    }
    if !has_security_option(info, "seccomp") {
        warnings.push("seccomp is off: capsules may use every system call".into());
    }
    if uses_containerd_store(info) {
        warnings.push("the containerd image store uses other image ids than the classic image store: all hosts that exchange images must use the same store".into());
    }
    warnings
}

fn uses_containerd_store(info: &SystemInfo) -> bool {
    let status = info.driver_status.iter().flatten().flatten();
    status
        .into_iter()
        .any(|part| part.contains("io.containerd.snapshotter"))
}

fn runc_version(version: &SystemVersion) -> Option<String> {
    let components = version.components.as_ref()?;
    components
        .iter()
        .find(|part| part.name == "runc")
        .map(|part| part.version.clone())
}

/// Source: the advisories' fixed versions, 1.2.8 and 1.3.3; 1.4.0 has the fixes.
fn is_vulnerable_runc(version: [u64; 3]) -> bool {
    version < [1, 2, 8] || ([1, 3, 0]..[1, 3, 3]).contains(&version)
}

/// The first three numbers of a version such as `20.10.24+dfsg1`.
fn numbers(version: &str) -> [u64; 3] {
    let mut parts = version.split('.').map(|part| {
        let digits = part
            .find(|char: char| !char.is_ascii_digit())
            .unwrap_or(part.len());
        part[..digits].parse().unwrap_or(0)
    });
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_options(options: &[&str]) -> SystemInfo {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        SystemInfo {
            security_options: Some(options),
            ..SystemInfo::default()
        }
    }

    #[test]
    fn unsupported_engines_are_rejected_by_name() {
        let desktop = SystemInfo {
            operating_system: Some("Docker Desktop".into()),
            ..SystemInfo::default()
        };
        for (info, kind) in [
            (desktop, Some("Docker Desktop")),
            (
                with_options(&["name=seccomp,profile=default", "name=rootless"]),
                Some("rootless Docker"),
            ),
            (with_options(&["name=userns"]), Some("userns-remap")),
            (
                with_options(&["name=selinux"]),
                Some("SELinux in enforcing mode"),
            ),
            (
                with_options(&["name=apparmor", "name=seccomp,profile=builtin"]),
                None,
            ),
        ] {
            assert_eq!(unsupported(&info).map(|refused| refused.kind), kind);
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(numbers("20.10.24+dfsg1"), [20, 10, 24]);
        assert_eq!(numbers("29.0"), [29, 0, 0]);
        for (version, vulnerable) in [
            ("1.1.5+ds1", true),
            ("1.2.8", false),
            ("1.3.0", true),
            ("1.3.3", false),
            ("1.4.0", false),
        ] {
            assert_eq!(
                is_vulnerable_runc(numbers(version)),
                vulnerable,
                "{version}"
            );
        }
    }
}
