//! A nats-server in a machine of its own, whose power can be cut.
//!
//! The machine is emulated (`qemu-system-x86_64`, without KVM: so it is the same everywhere and needs
//! no root): a distribution's kernel, a file system in memory with busybox and nats-server, and a disk
//! with ext4. Its power is cut by SIGKILL of the emulator: what its kernel has not written to the disk
//! by then is gone, what it has written is in the file that is the disk.

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

/// Of the Debian package busybox-static: the machine has no libraries.
const BUSYBOX: &str = "/bin/busybox";

/// Size of the disk, in bytes; it takes what is written to it.
const DISK_BYTES: u64 = 1 << 30;

/// Memory of the machine, in MiB: the kernel, nats-server twice (as a file and as it runs), and what
/// the page cache holds back.
const MEMORY_MEBIBYTES: u32 = 768;

/// How long it may take from power to JetStream, in seconds: 8 s on two busy cores.
const READY_SECONDS_MAX: u64 = 120;

/// Where nats-server listens in the machine, for clients and for HTTP of its monitoring.
const PORTS: [u16; 2] = [4222, 8222];

/// A machine with an empty disk; off, unless it was started. Gone on drop with all it has.
#[derive(Debug)]
pub struct Machine {
    process: Option<Process>,
    kernel: PathBuf,
    directory: Scratch,
    addresses: [SocketAddr; 2],
}

impl Machine {
    /// Makes the disk.
    pub fn with_empty_disk() -> Self {
        let machine = Self {
            process: None,
            kernel: tool::find_kernel(),
            directory: Scratch::new("machine"),
            addresses: [SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0); 2],
        };
        let disk = File::create(machine.disk()).expect("a directory of ours");
        disk.set_len(DISK_BYTES).expect("a sparse file");
        // Programs of the administrator are not on every user's PATH.
        let script = r#"PATH="$PATH:/usr/sbin:/sbin"; exec mkfs.ext4 -q -F "$0""#;
        run(Command::new("sh").args(["-c", script]).arg(machine.disk()));
        machine
    }

    /// Starts it, if it is off, and waits until JetStream is ready, two minutes at most.
    ///
    /// `files` are paths below `/etc` with their texts; `nats.conf` is the server's configuration,
    /// which has its store in `/data` and listens on 4222 and, for monitoring, on 8222.
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

    /// SIGKILL of the emulator, and waits for its end.
    pub fn cut_power(&mut self) {
        self.process = None;
    }

    /// `nats://address:port` of the server since the last start.
    pub fn url(&self) -> String {
        format!("nats://{}", self.addresses[0])
    }

    /// `http://address:port` of its monitoring.
    pub fn monitoring_url(&self) -> String {
        format!("http://{}", self.addresses[1])
    }

    fn disk(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    /// The file system in memory, as the kernel takes it.
    fn packed(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// What the machine and its emulator have printed.
    fn console(&self) -> PathBuf {
        self.directory.path().join("console")
    }

    /// Packs the file system with which the machine begins, of nothing but what it needs.
    fn lay_out(&self, files: &[(&str, &str)]) {
        let root = Scratch::new("machine-root");
        let path = root.path();
        for directory in ["bin", "data", "dev", "etc", "proc"] {
            std::fs::create_dir_all(path.join(directory)).expect("a directory of ours");
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
        std::fs::set_permissions(path.join("init"), executable).expect("a file of ours");
        for (name, text) in files {
            let file = path.join("etc").join(name);
            std::fs::create_dir_all(file.parent().expect("below etc"))
                .expect("a directory of ours");
            write(&file, text);
        }
        let script = r#"cd "$1" && find . | "$0" cpio -R 0:0 -H newc -o"#;
        let packed = File::create(self.packed()).expect("a directory of ours");
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
        let console = console.expect("a directory of ours");
        let [client, monitoring] = self.addresses;
        // The guest reaches nobody (`restrict`); who connects to the forwarded ports reaches it.
        let network = format!(
            "user,id=network,restrict=on,hostfwd=tcp:{client}-:{},hostfwd=tcp:{monitoring}-:{}",
            PORTS[0], PORTS[1]
        );
        // The disk is a file of this machine, which keeps its power: it needs no syncing here. What
        // the guest has written is in the file, whatever becomes of the emulator.
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
            .stdout(console.try_clone().expect("a file of ours"))
            .stderr(console);
        Process::start(&mut command)
    }
}

impl Drop for Machine {
    /// A test that failed shows what the machine said.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let console = std::fs::read(self.console()).unwrap_or_default();
            eprintln!("{}", String::from_utf8_lossy(&console));
        }
    }
}

/// Two ports that were free a moment ago: the emulator cannot tell which it has drawn.
fn free_addresses() -> [SocketAddr; 2] {
    let drawn = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    drawn.map(|listener| listener.local_addr().expect("a bound port"))
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a directory of ours");
}

/// Runs a program to its end, which must be good.
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
