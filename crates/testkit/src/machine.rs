//! A nats-server in an emulated machine whose power can be cut.
//!
//! The machine is emulated (`qemu-system-x86_64` without KVM: the same everywhere, without root): a distribution's
//! kernel, a file system in memory with busybox and nats-server, and a disk with ext4. Cutting the power is SIGKILL of
//! the emulator: data that its kernel has not written to the disk is lost; written data is in the file that is the
//! disk.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::nats;
use crate::process::Process;
use crate::scratch::Scratch;
use crate::tool;

/// The emulator, of the Debian package qemu-system-x86.
const EMULATOR: &str = "qemu-system-x86_64";

/// From the Debian package busybox-static: the machine has no libraries.
const BUSYBOX: &str = "/bin/busybox";

/// Size of the disk in bytes; the file is sparse.
const DISK_BYTES: u64 = 1 << 30;

/// Memory of the machine, in MiB: the kernel, nats-server twice (as a file and as a process), and the page cache.
const MEMORY_MEBIBYTES: u32 = 768;

/// Maximum time from power to JetStream, in seconds: 8 s on two busy cores.
const READY_SECONDS_MAX: u64 = 120;

/// Ports of nats-server in the machine, for clients and for HTTP monitoring.
const PORTS: [u16; 2] = [4222, 8222];

/// A machine with an empty disk; off until it is started. Deleted on drop.
#[derive(Debug)]
pub struct Machine {
    process: Option<Process>,
    kernel: PathBuf,
    directory: Scratch,
    addresses: [SocketAddr; 2],
}

impl Machine {
    /// Creates the disk.
    pub fn with_empty_disk() -> Self {
        let machine = Self {
            process: None,
            kernel: tool::find_kernel(),
            directory: Scratch::new("machine"),
            addresses: [SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0); 2],
        };
        let disk = File::create(machine.disk()).expect("a test directory");
        disk.set_len(DISK_BYTES).expect("a sparse file");
        // Administration programs are not on every user's PATH.
        let script = r#"PATH="$PATH:/usr/sbin:/sbin"; exec mkfs.ext4 -q -F "$0""#;
        run(Command::new("sh").args(["-c", script]).arg(machine.disk()));
        machine
    }

    /// Starts the machine, if it is off, and waits until JetStream is ready, two minutes at most.
    ///
    /// `files` are paths below `/etc` with their texts; `nats.conf` is the server's configuration, with its store in
    /// `/data`, on 4222 and, for monitoring, 8222.
    pub fn start(&mut self, files: &[(&str, &str)]) {
        self.cut_power();
        self.lay_out(files);
        self.addresses = free_addresses();
        let mut process = self.launch();
        let address = self.addresses[0];
        process.wait_for(READY_SECONDS_MAX, "answer of JetStream", || {
            nats::ready(address)
        });
        self.process = Some(process);
    }

    /// Kills the emulator with SIGKILL, and waits for its end.
    pub fn cut_power(&mut self) {
        self.process = None;
    }

    /// `nats://address:port` of the server since the last start.
    pub fn url(&self) -> String {
        format!("nats://{}", self.addresses[0])
    }

    /// `http://address:port` of the monitoring.
    pub fn monitoring_url(&self) -> String {
        format!("http://{}", self.addresses[1])
    }

    fn disk(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    /// The file system in memory, packed for the kernel.
    fn packed(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// The output of the machine and its emulator.
    fn console(&self) -> PathBuf {
        self.directory.path().join("console")
    }

    /// Packs the initial file system with only what the machine needs.
    fn lay_out(&self, files: &[(&str, &str)]) {
        let root = Scratch::new("machine-root");
        let path = root.path();
        for directory in ["bin", "data", "dev", "etc", "proc"] {
            std::fs::create_dir_all(path.join(directory)).expect("a test directory");
        }
        let modules = self.kernel.join("modules/.");
        run(Command::new("cp").arg("-R").arg(modules).arg(path));
        let server = nats::program();
        for (program, name) in [
            (Path::new(BUSYBOX), "bin/busybox"),
            (server.as_path(), "nats-server"),
        ] {
            std::fs::copy(program, path.join(name))
                .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        }
        write(&path.join("init"), include_str!("machine/init.sh"));
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path.join("init"), executable).expect("a test file");
        for (name, text) in files {
            let file = path.join("etc").join(name);
            std::fs::create_dir_all(file.parent().expect("below etc")).expect("a test directory");
            write(&file, text);
        }
        let script = r#"cd "$1" && find . | "$0" cpio -R 0:0 -H newc -o"#;
        let packed = File::create(self.packed()).expect("a test directory");
        run(Command::new("sh")
            .args(["-c", script, BUSYBOX])
            .arg(path)
            .stdout(packed));
    }

    fn launch(&self) -> Process {
        let console = File::options()
            .create(true)
            .append(true)
            .open(self.console());
        let console = console.expect("a test directory");
        let [client, monitoring] = self.addresses;
        // The guest reaches no network (`restrict`); clients of the forwarded ports reach the guest.
        let network = format!(
            "user,id=network,restrict=on,hostfwd=tcp:{client}-:{},hostfwd=tcp:{monitoring}-:{}",
            PORTS[0], PORTS[1]
        );
        // The disk is a file on this machine, which keeps its power, and needs no syncing: writes of the guest are in
        // the file even after the emulator is killed.
        let disk = format!(
            "file={},format=raw,if=virtio,cache=unsafe",
            self.disk().display()
        );
        let mut command = Command::new(EMULATOR);
        command
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
            ])
            .args(["-accel", "tcg", "-cpu", "qemu64", "-serial", "stdio"])
            .args(["-m", &MEMORY_MEBIBYTES.to_string()])
            .arg("-kernel")
            .arg(self.kernel.join("vmlinuz"))
            .arg("-initrd")
            .arg(self.packed())
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .args(["-drive", &disk, "-netdev", &network])
            .args(["-device", "virtio-net-pci,netdev=network"])
            .stdout(console.try_clone().expect("a test file"))
            .stderr(console);
        Process::start(&mut command)
    }
}

impl Drop for Machine {
    /// Prints the console of the machine if a test failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let console = std::fs::read(self.console()).unwrap_or_default();
            eprintln!("{}", String::from_utf8_lossy(&console));
        }
    }
}

/// Two ports that were free a moment ago: the emulator cannot report ports of its choice.
fn free_addresses() -> [SocketAddr; 2] {
    let drawn = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    drawn.map(|listener| listener.local_addr().expect("a bound port"))
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a test directory");
}

/// Runs a program to its end, which must succeed.
fn run(command: &mut Command) {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{name} ended with {}: {said}",
        output.status
    );
}
