//! Several hosts on one machine, for tests as root: a host is a set of namespaces (network, processes, mounts, host
//! name) with its own address on a common bridge, and optionally its own Docker daemon.
//!
//! The bridge is in a network namespace too, so that no firewall rule of the machine applies between hosts; one link
//! connects it with the machine, so that tests reach hosts. The first process of a host ends with the test's process,
//! and all others of the host end with it, whatever happens to the test. The next test removes the leftovers of a
//! killed one (names, directories). Other modules start the programs.

mod claim;
mod commands;
mod disk;
mod engine;
mod host;
mod process;
mod sweep;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub(crate) use commands::all_processes;
pub use commands::eventually;
pub use disk::Disk;
pub(crate) use engine::show_log;
pub use host::Host;
pub(crate) use process::HostProcess;
pub use sweep::leftovers;

use claim::Claim;
use commands::ip;

/// Directory of all files of hosts. Not in `/tmp`, which may be memory, nor deeper: paths of sockets are short.
const BASE_DIRECTORY: &str = "/var/tmp/aod-tests";

/// An environment variable of all processes of a network, with its number.
const MARK: &str = "AOD_TEST_NETWORK";

/// The address of the machine in a network.
const MACHINE: u8 = 1;

/// Prefix of all names of a network: namespaces, cgroups, the link to the machine.
fn name_of(number: u8) -> String {
    format!("aodt-{number}")
}

/// The directory of a network.
fn directory_of(number: u8) -> PathBuf {
    PathBuf::from(BASE_DIRECTORY).join(number.to_string())
}

/// An address of a network. Source: RFC 2544, 198.18.0.0/15 is for tests of networks.
fn address_of(number: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, number, host)
}

/// A network for hosts. Its number is unique on this machine.
#[derive(Debug)]
pub struct Network {
    segment: Arc<Segment>,
    hosts: AtomicU8,
}

/// The part that is removed after the last host.
#[derive(Debug)]
struct Segment {
    claim: Claim,
}

impl Drop for Segment {
    fn drop(&mut self) {
        let left = sweep::sweep(self.claim.number());
        assert!(
            left.is_empty() || std::thread::panicking(),
            "left behind: {left:?}"
        );
    }
}

impl Network {
    /// Creates a network without hosts, after removing the leftovers of killed tests.
    pub fn new() -> Self {
        sweep::sweep_abandoned();
        let segment = Arc::new(Segment {
            claim: Claim::take(),
        });
        let number = segment.claim.number();
        std::fs::create_dir_all(directory_of(number)).expect("a test directory");
        let name = name_of(number);
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link add bridge type bridge"));
        ip(&format!("-n {name} link set bridge up"));
        ip(&format!(
            "link add {name} type veth peer name machine netns {name}"
        ));
        ip(&format!("-n {name} link set machine master bridge up"));
        ip(&format!(
            "addr add {}/24 dev {name}",
            address_of(number, MACHINE)
        ));
        ip(&format!("link set {name} up"));
        Self {
            segment,
            hosts: AtomicU8::new(MACHINE),
        }
    }

    pub fn number(&self) -> u8 {
        self.segment.claim.number()
    }

    /// The address of the test's own programs, for hosts.
    pub fn machine_address(&self) -> Ipv4Addr {
        address_of(self.number(), MACHINE)
    }

    /// A directory for files of the test, deleted with the network.
    pub fn directory(&self) -> PathBuf {
        directory_of(self.number())
    }

    /// Starts a host, without a Docker daemon.
    pub fn add_host(&self) -> Host {
        let host = self.hosts.fetch_add(1, Ordering::Relaxed) + 1;
        Host::start(Arc::clone(&self.segment), host)
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}
