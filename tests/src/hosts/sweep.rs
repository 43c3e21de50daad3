//! Removes a network with everything in it, from any state.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::claim::Claim;
use super::commands::all_processes;
use super::{MARK, directory_of, name_of};

/// Maximum time for processes to end and mounts to be removed: files of a daemon take longest.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pause between two tries.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Removes the leftovers of killed tests.
pub(super) fn sweep_abandoned() {
    for claim in Claim::take_abandoned() {
        let left = sweep(claim.number());
        assert!(
            left.is_empty(),
            "cannot remove the leftovers of a killed test: {left:?}"
        );
    }
}

/// Removes everything of the network `number`; returns the leftovers.
pub(super) fn sweep(number: u8) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for process in processes(number) {
            quietly(Command::new("kill").args(["-s", "KILL", &process.to_string()]));
        }
        for namespace in namespaces(number) {
            quietly(Command::new("ip").args(["netns", "del", &namespace]));
        }
        for cgroup in cgroups(number) {
            remove_cgroup(&cgroup);
        }
        let _ = fs::remove_dir_all(directory_of(number));
        let left = leftovers(number);
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        sleep(RETRY_AFTER);
    }
}

/// Everything on this machine that belongs to the network `number`, as text.
pub fn leftovers(number: u8) -> Vec<String> {
    let processes = processes(number)
        .into_iter()
        .map(|process| format!("process {process}"));
    let namespaces = namespaces(number)
        .into_iter()
        .map(|name| format!("network namespace {name}"));
    let cgroups = cgroups(number)
        .into_iter()
        .map(|path| format!("cgroup {}", path.display()));
    let directory = Some(directory_of(number)).filter(|path| path.exists());
    let directory = directory.map(|path| format!("directory {}", path.display()));
    let link = PathBuf::from("/sys/class/net").join(name_of(number));
    let link = link.exists().then(|| format!("link {}", name_of(number)));
    let mounts = mounts(number)
        .into_iter()
        .map(|path| format!("mount {path}"));
    let disks = disks(number)
        .into_iter()
        .map(|device| format!("disk {device}"));
    processes
        .chain(namespaces)
        .chain(cgroups)
        .chain(directory)
        .chain(link)
        .chain(mounts)
        .chain(disks)
        .collect()
}

/// The processes with the network's mark in their environment.
fn processes(number: u8) -> Vec<u32> {
    let mark = format!("{MARK}={number}");
    let is_marked = |process: &u32| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable == mark.as_bytes())
    };
    all_processes().into_iter().filter(is_marked).collect()
}

fn namespaces(number: u8) -> Vec<String> {
    entries(Path::new("/run/netns"))
        .filter(|name| is_of(name, number))
        .collect()
}

/// The cgroups of its Docker daemons, in each hierarchy.
fn cgroups(number: u8) -> Vec<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    let hierarchies = entries(&root)
        .map(|name| root.join(name))
        .chain([root.clone()]);
    let below = |path: PathBuf| {
        entries(&path)
            .filter(|name| is_of(name, number))
            .map(move |name| path.join(name))
            .collect::<Vec<_>>()
    };
    hierarchies.flat_map(below).collect()
}

fn remove_cgroup(path: &Path) {
    for name in entries(path) {
        let below = path.join(name);
        if below.is_dir() {
            remove_cgroup(&below);
        }
    }
    let _ = fs::remove_dir(path);
}

/// Its mounts in the machine's namespace.
fn mounts(number: u8) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mounts").expect("a Linux machine");
    let places = table.lines().filter_map(|line| line.split(' ').nth(1));
    let directory = directory_of(number);
    let is_ours = |place: &&str| {
        let name = place.strip_prefix("/run/netns/").unwrap_or_default();
        Path::new(place).starts_with(&directory) || is_of(name, number)
    };
    places.filter(is_ours).map(str::to_owned).collect()
}

/// Its loop devices; each ends with its last mount.
fn disks(number: u8) -> Vec<String> {
    let directory = directory_of(number);
    let is_ours = |device: &String| {
        let file = fs::read_to_string(format!("/sys/block/{device}/loop/backing_file"));
        file.is_ok_and(|file| Path::new(&file).starts_with(&directory))
    };
    entries(Path::new("/sys/block")).filter(is_ours).collect()
}

fn is_of(name: &str, number: u8) -> bool {
    let network = name_of(number);
    name == network
        || name
            .strip_prefix(&network)
            .is_some_and(|rest| rest.starts_with('-'))
}

fn entries(directory: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// Runs a command whose failure means that nothing is left to do.
fn quietly(command: &mut Command) {
    let _ = command.output();
}
