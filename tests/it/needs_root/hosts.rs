//! Test hosts behave like hosts: isolated, cut and reconnected, and deleted completely.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use aod_tests::hosts::{Host, Network, eventually, leftovers};

const PATIENCE: Duration = Duration::from_secs(30);

/// Set when the test's own program is started again to be killed.
const VICTIM: &str = "AOD_TEST_VICTIM";

/// A port of a host.
const PORT: u16 = 8_080;

/// Answers connections to [`PORT`] on the host until the host ends.
fn listen(host: &Host) -> std::process::Child {
    let mut command = host.command("busybox");
    let listener = command
        .args(["nc", "-ll", "-p", &PORT.to_string(), "-e", "cat"])
        .spawn();
    let listener = listener.expect("nsenter is installed");
    eventually("a listener", PATIENCE, || {
        answers(host.address()).then_some(())
    });
    listener
}

fn answers(address: Ipv4Addr) -> bool {
    let address = SocketAddr::new(address.into(), PORT);
    TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_ok()
}

/// Runs a container on the host that never ends by itself.
fn run_for_ever(host: &Host) {
    let busybox = std::fs::read("/bin/busybox").expect("busybox-static is installed");
    let directory = host.directory().join("image");
    std::fs::create_dir_all(directory.join("bin")).expect("a test directory");
    std::fs::write(directory.join("busybox"), busybox).expect("a test directory");
    let dockerfile = "FROM scratch\nCOPY busybox /busybox\nENTRYPOINT [\"/busybox\"]\n";
    std::fs::write(directory.join("Dockerfile"), dockerfile).expect("a test directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.join("busybox"), mode).expect("a test file");
    host.docker(&[
        "build",
        "--quiet",
        "--tag",
        "busybox",
        &directory.display().to_string(),
    ]);
    host.docker(&["run", "--detach", "busybox", "tail", "-f", "/dev/null"]);
}

#[test]
fn hosts_have_their_own_docker_and_leave_nothing() {
    let network = Network::new();
    let number = network.number();
    let hosts = [network.add_host(), network.add_host()];
    for host in &hosts {
        host.start_engine();
    }
    run_for_ever(&hosts[0]);
    assert_eq!(
        (hosts[0].containers().len(), hosts[1].containers().len()),
        (1, 0)
    );
    let mut listeners: Vec<_> = hosts.iter().map(listen).collect();
    hosts[0].cut();
    assert!(
        !answers(hosts[0].address()),
        "nothing passes a link that is cut"
    );
    assert!(answers(hosts[1].address()), "the others are joined");
    hosts[0].join();
    eventually("an answer over the link", PATIENCE, || {
        answers(hosts[0].address()).then_some(())
    });
    assert!(!leftovers(number).is_empty(), "what is there is found");
    drop((hosts, network));
    assert_eq!(leftovers(number), Vec::<String>::new());
    for listener in &mut listeners {
        listener.wait().expect("a child of ours");
    }
}

#[test]
fn host_disk_fills_separately_and_engine_restarts() {
    let network = Network::new();
    let number = network.number();
    let host = network.add_host();
    host.mount_disk(256 << 20);
    host.start_engine();
    run_for_ever(&host);
    let write = || {
        let file = host.data_directory().join("file");
        let mut command = host.command("dd");
        command.args(["if=/dev/zero", "bs=1M", "count=1", "conv=fsync"]);
        let output = command.arg(format!("of={}", file.display())).output();
        output.expect("dd is installed").status.success()
    };
    let disk = host.disk().expect("it was mounted");
    disk.fill();
    assert!(!write(), "there is no room");
    std::fs::write(host.directory().join("other"), vec![0; 1 << 16]).expect("elsewhere there is");
    disk.empty();
    assert!(write(), "there is room again");
    host.kill_engine();
    host.start_engine();
    assert_eq!(host.containers().len(), 1, "what it had it has");
    drop((host, network));
    assert_eq!(leftovers(number), Vec::<String>::new());
}

/// Creates hosts, prints their network, then waits to be killed.
fn be_a_victim() -> ! {
    let network = Network::new();
    let host = network.add_host();
    host.start_engine();
    run_for_ever(&host);
    let mut out = std::io::stdout();
    writeln!(out, "\nvictim {}", network.number())
        .and_then(|()| out.flush())
        .expect("a pipe");
    loop {
        std::thread::park();
    }
}

#[test]
fn leftovers_of_a_killed_test_are_removed_by_the_next() {
    if std::env::var_os(VICTIM).is_some() {
        be_a_victim();
    }
    let mut victim = Command::new(std::env::current_exe().expect("a program"))
        .args([
            "needs_root::hosts::leftovers_of_a_killed_test_are_removed_by_the_next",
            "--exact",
            "--nocapture",
        ])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("this very program");
    let output = BufReader::new(victim.stdout.take().expect("piped"));
    let number = output
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("victim ")?.parse().ok());
    victim.kill().expect("a child of ours");
    victim.wait().expect("a child of ours");
    let number: u8 = number.expect("the victim has made a network");
    let has_process = || {
        leftovers(number)
            .iter()
            .any(|what| what.starts_with("process"))
    };
    eventually(
        "the end of all processes of a killed test",
        PATIENCE,
        || (!has_process()).then_some(()),
    );
    let network = Network::new();
    let left = leftovers(number);
    assert!(left.is_empty() || network.number() == number, "{left:?}");
    assert!(
        !left
            .iter()
            .any(|what| what.contains(&format!("aodt-{number}-"))),
        "{left:?}"
    );
}
