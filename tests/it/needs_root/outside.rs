//! Egress over the node's real network: a host with an address that looks public represents the internet, on an
//! isolated bridge.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aod_tests::hosts::{Host, Network, eventually};
use aod_tests::images::CapsuleDirectory;
use aod_tests::programs::aod;

/// Address of the remote host.
const FAR: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

/// A second address of the node's own host.
const OWN: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 35);

/// Maximum time for a server to listen.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Prints the first line of the proxy's answer, and the last line from the server.
const SCRIPT: &str = r#"
try() {
    mkfifo /workspace/request
    exec 3<>/workspace/request
    nc 127.0.0.1 8700 </workspace/request >/workspace/response &
    printf 'CONNECT %s:443 HTTP/1.0\r\n\r\nGET /page HTTP/1.0\r\n\r\n' "$1" >/workspace/request
    wait $!
    rm /workspace/request
    tr -d '\r' </workspace/response | sed -n -e 1p -e '$p' | cut -c 1-150
}
{
    try 93.184.216.34
    try 93.184.216.35
} >/io/output/report.txt
echo '{"report": "report.txt"}' | answer
"#;

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(
        status.expect("the command ip is installed").success(),
        "ip {arguments}"
    );
}

/// A server of the files in `directory`; ends with its host.
fn serve(host: &Host, address: Ipv4Addr, directory: &Path) -> Child {
    ip(&format!("-n {} link set lo up", host.name()));
    ip(&format!("-n {} addr add {address}/32 dev lo", host.name()));
    let mut command = host.command("python3");
    command.args(["-m", "http.server", "443", "--bind", &address.to_string()]);
    command.arg("--directory").arg(directory);
    let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let server = server.expect("python3 is installed");
    eventually("a server", START_PATIENCE, || {
        let try_it = "import socket, sys; socket.create_connection((sys.argv[1], 443), 1)";
        let mut command = host.command("python3");
        let tried = command
            .args(["-c", try_it, &address.to_string()])
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success()).then_some(())
    });
    server
}

#[test]
fn egress_reaches_the_network_but_not_the_nodes_own_host() {
    let network = Network::new();
    let (near, far) = (network.add_host(), network.add_host());
    let capsule = CapsuleDirectory::new("probe");
    let write = |name: &str, text: &str| {
        let path = network.directory().join(name);
        std::fs::write(&path, text).expect("a test directory");
        path
    };
    write("page", "from far away\n");
    let script = write("script.sh", SCRIPT);
    let agent = format!("egress: ['{FAR}', '{OWN}']\n");
    std::fs::write(capsule.path().join("agent.yaml"), agent).expect("a test directory");
    let mut servers = [
        serve(&far, FAR, &network.directory()),
        serve(&near, OWN, &network.directory()),
    ];
    ip(&format!(
        "-n {} route add {FAR}/32 via {}",
        near.name(),
        far.address()
    ));
    near.start_engine();

    let made = near.directory().join("made");
    let mut command = near.command(aod());
    command.args(["capsule", "run"]).arg(capsule.path());
    command
        .arg("-i")
        .arg(format!("script=@{}", script.display()));
    command.arg("-o").arg(&made).args(["--egress", "*"]);
    command
        .arg("--docker")
        .arg(format!("unix://{}", near.docker_socket().display()));
    command.env("TMPDIR", near.directory());
    if let Some(server) = std::env::var_os("AOD_TEST_NATS_SERVER") {
        command.env("AOD_NATS_SERVER", server);
    }
    let ran = command.output().expect("aod starts");
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let report = std::fs::read_to_string(made.join("report.txt")).expect("the report");
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines[..2], ["HTTP/1.0 200 OK", "from far away"], "{report}");
    let refused = "HTTP/1.0 502 egress_unreachable: 93.184.216.35:443 cannot be reached: \
                   this is an address of the node's own host";
    assert_eq!(lines[2], refused, "{report}");
    for server in &mut servers {
        // The host ends it if this does not.
        let _ = server.kill();
        let _ = server.wait();
    }
}
