//! A capsule has no access to the broker, even with a known password.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use aod_tests::images::CapsuleDirectory;
use serde_json::Value;

use super::canary::Up;

/// The broker's greeting to a new connection.
const GREETING: &str = "INFO {";

/// Tries to reach the broker directly and through egress, and to log in; then prints everything that it can read.
const SCRIPT: &str = r#"
for address in ADDRESSES; do
    echo "trying $address"
    printf 'CONNECT {"user":"node","pass":"%s","verbose":true}\r\nPING\r\n' "$(cat /io/input/password)" |
        nc -w 2 "$address" PORT 2>&1
    printf 'CONNECT %s:PORT HTTP/1.1\r\nHost: %s:PORT\r\n\r\n' "$address" "$address" |
        nc -w 2 127.0.0.1 8700 2>&1
done
echo "devices: $(tail -n +3 /proc/net/dev | cut -d : -f 1 | tr -d ' \n')"
rm -f /io/input/password 2>/dev/null
env
cat /proc/*/environ /proc/*/cmdline /proc/*/maps 2>/dev/null | tr '\0' '\n'
find / -xdev -type f ! -path '/proc/*' ! -path '/sys/*' ! -path '/io/input/*' -exec cat {} + 2>/dev/null |
    strings -n 32 | grep -oE '[0-9a-f]{32,}'
find /run /.aod /io/output /tmp /workspace -type f -exec cat {} + 2>/dev/null | strings
echo looked
echo '{}' | answer
"#;

const MANIFEST: &str = "\
version: 1
name: probe
title: Probe
description: Tells what it sees.
";

/// The address of this host for outgoing connections; sends nothing.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

/// Every password and secret created by `aod up`: a user's second line, or the only one.
fn secrets(up: &Up) -> Vec<String> {
    let directory = up.at("data/nats");
    let entries = fs::read_dir(&directory).expect("a directory of aod's");
    let mut secrets = Vec::new();
    for entry in entries {
        let path = entry.expect("a file of aod's").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        if name.strip_suffix(".creds").is_some() || ["token", "seal.key"].contains(&name) {
            let text = fs::read_to_string(&path).expect("a file of aod's");
            secrets.push(text.lines().last().expect("a secret").to_owned());
        }
    }
    secrets
}

#[tokio::test(flavor = "multi_thread")]
async fn capsule_finds_neither_broker_nor_credentials() {
    let up = Up::start("providers: {}\n", &[]).await;
    let configuration = fs::read_to_string(up.at("data/nats/nats.conf")).expect("a file of aod's");
    let (_, rest) = configuration
        .split_once("listen: \"127.0.0.1:")
        .expect("an address");
    let port = rest.split('"').next().expect("a port");
    // A process on this host reaches it.
    let near = TcpStream::connect(format!("127.0.0.1:{port}")).expect("the broker is there");
    near.set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a time");
    let mut greeting = String::new();
    BufReader::new(near)
        .read_line(&mut greeting)
        .expect("a greeting");
    assert!(greeting.starts_with(GREETING), "{greeting}");

    let password = fs::read_to_string(up.at("data/nats/nats-node.creds")).expect("credentials");
    let password = password.lines().last().expect("a password").to_owned();
    let mut addresses = vec![
        "127.0.0.1".to_owned(),
        "172.17.0.1".to_owned(),
        "localhost".to_owned(),
    ];
    addresses.extend(own_address());
    let script = SCRIPT
        .replace("ADDRESSES", &addresses.join(" "))
        .replace("PORT", port);
    fs::write(up.at("script.sh"), script).expect("a test directory");
    fs::write(up.at("password"), &password).expect("a test directory");
    let capsule = CapsuleDirectory::new("probe");
    capsule.write("agent.yaml", MANIFEST);
    let built = up.told(&[
        "capsule",
        "build",
        capsule.path().to_str().expect("a test path"),
    ]);
    let script = format!("script=@{}", up.at("script.sh").display());
    let given = format!("password=@{}", up.at("password").display());
    let ended = up.aod(&[
        "run", "probe", "-i", &script, "-i", &given, "--format", "json",
    ]);
    let ended: Value = serde_json::from_slice(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {ended:?}\n{built}"));
    let run = ended["id"].as_str().or(ended["run_id"].as_str());
    let logs = up.told(&["runs", "logs", run.expect("a run has an id")]);
    assert!(logs.contains("looked"), "{logs}");
    for address in &addresses {
        assert!(logs.contains(&format!("trying {address}\n")), "{logs}");
    }
    assert!(!logs.contains(GREETING) && !logs.contains("+OK"), "{logs}");
    assert!(logs.contains("devices: lo\n"), "{logs}");
    let secrets = secrets(&up);
    assert!(secrets.len() >= 5, "{secrets:?}");
    for secret in secrets {
        assert!(!logs.contains(&secret), "a capsule has read {secret}");
    }
}
