//! The definition of a capsule's container: hardening, mounts and limits, as one pure function from a
//! specification to a request to the engine.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use aod_domain::capsule::Resources;
use aod_gate::protocol::{self as gate, BINARY_DIRECTORY, BINARY_PATH, CHANNEL_DIRECTORY, Go};
use aod_ports::container_runtime::{
    ContainerSpec, Device, IoPaths, RuntimeError, SECRETS_DIRECTORY, SecretFile,
};
use bollard::models::{
    ContainerCreateBody, DeviceMapping, HealthConfig, HostConfig, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountTmpfsOptions, MountType,
    ResourcesUlimits,
};

use crate::config::{CapsuleUser, Config};
use crate::image::ImageFacts;
use crate::names::{
    LABEL_ATTEMPT, LABEL_CAPSULE, LABEL_CLUSTER, LABEL_LAUNCH, LABEL_NODE, LABEL_RUN,
};
use crate::volumes;

#[cfg(test)]
mod tests;

/// The host name in every container; also in the hosts file.
const HOST_NAME: &str = "capsule";

/// `/etc/hosts` of every container: without a network Docker leaves the file empty.
pub(crate) const HOSTS: &str = "127.0.0.1 localhost capsule\n";

/// The `PATH` of images without one. Source: moby `oci/defaults.go`, `DefaultPathEnv`.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The scratch directory, and the home of capsules whose image sets no `HOME`.
pub(crate) const WORKSPACE: &str = "/workspace";

const TMP: &str = "/tmp";

/// Maximum size of `/tmp`, in bytes. `/tmp` is memory, so at most a quarter of the capsule's; large files
/// belong into the workspace.
const TMP_SIZE_BYTES_MAX: u64 = 256 << 20;

/// Maximum size of all secrets, in bytes: each takes at least a page of memory.
const SECRETS_SIZE_BYTES_MAX: u64 = 1 << 20;

/// Open files of one process: enough for servers and browsers; memory bounds the sum.
const OPEN_FILES_MAX: i64 = 16_384;

/// Processes and threads of one user *of the whole host*: the kernel counts all capsules of a user
/// together, so this limit is a second line behind the container's own limit on processes.
const USER_PROCESSES_MAX: i64 = 65_536;

/// When the host runs out of memory, the kernel kills capsules before the engine and the node, whose
/// values are 0 or below.
const OOM_SCORE_ADJUSTMENT: i64 = 500;

/// Size of the gate's own log, kept for diagnosis; it does not contain the capsule's output.
const GATE_LOG_SIZE: &str = "64k";

/// The request to the engine, and the command for the gate.
#[derive(Debug)]
pub(crate) struct Creation {
    pub(crate) body: ContainerCreateBody,
    pub(crate) go: Go,
}

/// Computes the container for `spec`, marked with `launch`; `volumes` are the [`volumes::paths`] of the image.
///
/// # Errors
/// [`RuntimeError::ImageRefused`] if no node, or no node of this kind, can run the image.
pub(crate) fn plan(
    config: &Config,
    spec: &ContainerSpec,
    image: &ImageFacts,
    volumes: &[String],
    launch: &str,
) -> Result<Creation, RuntimeError> {
    let user = user(config.capsule_user, image)?;
    if image.command.is_empty() && !spec.holds {
        return Err(refused(
            "the image has no command; set ENTRYPOINT or CMD in the Dockerfile",
        ));
    }
    let mut mounts = binds(config, &spec.io);
    mounts.extend(temporary(spec));
    mounts.extend(volumes.iter().enumerate().map(|(number, path)| {
        let source = volumes::source(&spec.io.volumes, number, path);
        bind(&source, path, false)
    }));
    let body = ContainerCreateBody {
        hostname: Some(HOST_NAME.into()),
        user: Some(user),
        entrypoint: Some(vec![BINARY_PATH.into()]),
        cmd: Some(vec![]),
        // A health check would run a command of the image beside the gate, possibly before the capsule's command.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".into()]),
            ..Default::default()
        }),
        image: Some(spec.image.clone()),
        // The steps of a task work on its workspace, wherever the image would start.
        working_dir: spec.holds.then(|| WORKSPACE.into()),
        network_disabled: Some(true),
        labels: Some(labels(config, spec, launch)),
        host_config: Some(HostConfig {
            mounts: Some(mounts),
            runtime: config.runtime.clone(),
            devices: Some(spec.devices.iter().map(device).collect()),
            group_add: Some(groups(&spec.devices)),
            ..hardening(&spec.resources)
        }),
        ..ContainerCreateBody::default()
    };
    let go = Go {
        holds: spec.holds,
        argv: image.command.clone(),
        env: environment(image, spec),
        // Computed when it is sent: a start may take long.
        lease_milliseconds: 0,
        secrets: spec.secrets.iter().map(secret).collect(),
    };
    Ok(Creation { body, go })
}

/// A device of the host at its own path, with the right to read and write, but not to create device files.
fn device(device: &Device) -> DeviceMapping {
    let path = device.path.to_string_lossy().into_owned();
    DeviceMapping {
        path_on_host: Some(path.clone()),
        path_in_container: Some(path),
        cgroup_permissions: Some("rw".into()),
    }
}

/// The groups that may use `devices`, without root's group.
fn groups(devices: &[Device]) -> Vec<String> {
    let groups: BTreeSet<u32> = devices.iter().map(|device| device.group).collect();
    let groups = groups.into_iter().filter(|group| *group != 0);
    groups.map(|group| group.to_string()).collect()
}

/// A file that the gate writes before it starts the command. Secrets travel only over the run's own
/// socket: every client of the engine can read the requests to the engine.
fn secret(file: &SecretFile) -> gate::SecretFile {
    gate::SecretFile {
        path: format!("{SECRETS_DIRECTORY}/{}", file.name),
        value: file.value.expose().to_owned(),
    }
}

/// Checks that capsules may run as the gate's user, as the kernel reports it. The engine resolves names by
/// the image's own list of users, in which any name may be root.
pub(crate) fn ensure_user(policy: CapsuleUser, uid: u32) -> Result<(), RuntimeError> {
    match policy {
        _ if uid == 0 => Err(refused(
            "the user of the image has the number 0, which is root; set USER to another user",
        )),
        CapsuleUser::Own { uid: own, .. } if uid != own => Err(refused(&format!(
            "the user of the image has the number {uid}, and this node runs capsules only as {own}"
        ))),
        CapsuleUser::OfImage | CapsuleUser::Own { .. } => Ok(()),
    }
}

pub(crate) fn refused(message: &str) -> RuntimeError {
    RuntimeError::ImageRefused {
        message: message.to_owned(),
    }
}

fn user(policy: CapsuleUser, image: &ImageFacts) -> Result<String, RuntimeError> {
    let (of_image, is_root) = (image.user.as_str(), image.is_for_root());
    let name = of_image.split(':').next().unwrap_or_default();
    match policy {
        CapsuleUser::OfImage if is_root => {
            Ok(format!("{}:{}", CapsuleUser::NOBODY, CapsuleUser::NOBODY))
        }
        CapsuleUser::OfImage => Ok(of_image.to_owned()),
        CapsuleUser::Own { uid: 0, .. } => Err(refused(
            "this node is configured to run capsules as root; capsules never run as root",
        )),
        CapsuleUser::Own { uid, gid } if is_root || name.parse() == Ok(uid) => {
            Ok(format!("{uid}:{gid}"))
        }
        CapsuleUser::Own { uid, .. } => Err(refused(&format!(
            "the image sets USER {of_image}, and this node, which is not root, runs capsules only as {uid}"
        ))),
    }
}

fn labels(config: &Config, spec: &ContainerSpec, launch: &str) -> HashMap<String, String> {
    HashMap::from(
        [
            (LABEL_CLUSTER, config.cluster.clone()),
            (LABEL_NODE, config.node.to_string()),
            (LABEL_RUN, spec.run.to_string()),
            (LABEL_ATTEMPT, spec.attempt.to_string()),
            (LABEL_CAPSULE, spec.capsule.clone()),
            (LABEL_LAUNCH, launch.to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    )
}

/// The image's own variables, defaults that every capsule can rely on, then the contract's variables.
fn environment(image: &ImageFacts, spec: &ContainerSpec) -> Vec<(String, String)> {
    // The workspace of a task is stored after each step: the files of tools do not belong into it.
    let home = if spec.holds { TMP } else { WORKSPACE };
    let defaults = [
        ("PATH", PATH_DEFAULT),
        ("HOSTNAME", HOST_NAME),
        ("HOME", home),
        ("TMPDIR", home),
    ];
    let is_set = |name: &str| image.environment.iter().any(|(key, _)| key == name);
    let missing = defaults.into_iter().filter(|(name, _)| !is_set(name));
    let missing = missing.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let of_image = image.environment.iter().cloned();
    missing
        .chain(of_image)
        .chain(spec.environment.iter().cloned())
        .collect()
}

fn binds(config: &Config, io: &IoPaths) -> Vec<Mount> {
    let (read_only, writable) = (true, false);
    vec![
        bind(&io.io, "/io", writable),
        bind(&io.input_json, "/io/input.json", read_only),
        bind(&io.inputs, "/io/input", read_only),
        bind(&io.outputs, "/io/output", writable),
        bind(&io.handoff, "/io/handoff", read_only),
        bind(&io.outgoing, "/io/handoff/outgoing", writable),
        bind(&io.incoming, "/io/handoff/incoming", read_only),
        bind(&io.workspace, WORKSPACE, writable),
        bind(&io.channel, CHANNEL_DIRECTORY, read_only),
        bind(&config.gate_directory, BINARY_DIRECTORY, read_only),
        bind(&config.hosts_file, "/etc/hosts", read_only),
    ]
}

/// Later mounts on one side do not appear on the other side, and mounts below the source are not visible.
fn bind(source: &Path, target: &str, is_read_only: bool) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_owned()),
        read_only: Some(is_read_only),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            non_recursive: Some(true),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// `/tmp` and the directory of secrets, as memory.
fn temporary(spec: &ContainerSpec) -> Vec<Mount> {
    let size_bytes = TMP_SIZE_BYTES_MAX.min(spec.resources.memory_bytes / 4);
    let mut mounts = vec![tmpfs(TMP, size_bytes)];
    if !spec.secrets.is_empty() {
        mounts.push(tmpfs(SECRETS_DIRECTORY, SECRETS_SIZE_BYTES_MAX));
    }
    mounts
}

/// Docker's own options apply: noexec, nosuid, nodev. Source: moby `daemon/oci_linux.go`.
fn tmpfs(target: &str, size_bytes: u64) -> Mount {
    Mount {
        typ: Some(MountType::TMPFS),
        target: Some(target.to_owned()),
        tmpfs_options: Some(MountTmpfsOptions {
            size_bytes: i64::try_from(size_bytes).ok(),
            mode: Some(0o1777),
            ..MountTmpfsOptions::default()
        }),
        ..Mount::default()
    }
}

/// Restrictions of untrusted code. Docker's own seccomp profile and masked paths stay in force.
fn hardening(resources: &Resources) -> HostConfig {
    let memory_bytes = i64::try_from(resources.memory_bytes).unwrap_or(i64::MAX);
    let disk_bytes = i64::try_from(resources.disk_bytes).unwrap_or(i64::MAX);
    let gate_log = [
        ("max-size", GATE_LOG_SIZE),
        ("max-file", "1"),
        ("compress", "false"),
    ];
    HostConfig {
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(vec!["no-new-privileges:true".into()]),
        readonly_rootfs: Some(true),
        ipc_mode: Some("private".into()),
        memory: Some(memory_bytes),
        // The sum of memory and swap: equal means no swap.
        memory_swap: Some(memory_bytes),
        nano_cpus: Some(i64::from(resources.cpu_millis) * 1_000_000),
        pids_limit: Some(i64::from(resources.pids)),
        oom_score_adj: Some(OOM_SCORE_ADJUSTMENT),
        ulimits: Some(vec![
            limit("nofile", OPEN_FILES_MAX),
            limit("nproc", USER_PROCESSES_MAX),
            limit("fsize", disk_bytes),
            limit("core", 0),
        ]),
        log_config: Some(HostConfigLogConfig {
            typ: Some("local".into()),
            config: Some(HashMap::from(
                gate_log.map(|(key, value)| (key.to_owned(), value.to_owned())),
            )),
        }),
        // The node removes its containers, after it has seen how they ended.
        auto_remove: Some(false),
        // The gate is the first process and reaps.
        init: Some(false),
        ..HostConfig::default()
    }
}

fn limit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.into()),
        soft: Some(value),
        hard: Some(value),
    }
}
