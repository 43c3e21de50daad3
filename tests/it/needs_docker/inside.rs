//! The view, the network and the writable files of a capsule.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aod_domain::digest::Digest;
use aod_tests::client::eventually;
use aod_tests::docker_cluster::DockerCluster;
use serde_json::{Value, json};

use super::redaction::{redacted, without_ids};

/// The port on which a neighbour listens inside its own container.
const NEIGHBOUR_PORT: u16 = 9_999;

/// A capsule that runs beside the spying one, and must receive nothing.
const NEIGHBOUR: &str = "
nc -l -p 9999 >/workspace/heard && echo heard somebody &
echo listening
wait
sleep 600
";

/// Writable places, one line each: the directories and files of the contract, and others.
const WRITING: &str = r#"
echo given >$OUTGOING/given.txt
for place in / /etc /bin /capsule /dev /proc/sys/kernel /sys /.aod /.aod/bin /.aod/channel /io/input \
    /io/handoff/incoming /io /io/output /io/handoff/outgoing /workspace /tmp /dev/shm; do
    if echo x 2>/dev/null >"$place/new"; then echo "new in $place"; fi
done 2>/dev/null
for file in /io/input.json /io/input/script.sh /etc/hosts /capsule/run.sh /.aod/bin/aod-gate; do
    if echo x 2>/dev/null >>"$file"; then echo "more in $file"; fi
    if chmod 666 "$file" 2>/dev/null; then echo "mode of $file"; fi
    if rm -f "$file" 2>/dev/null && [ ! -e "$file" ]; then echo "removed $file"; fi
    if mv "$file" /workspace/moved 2>/dev/null; then echo "moved $file"; fi
    if ln "$file" /workspace/linked 2>/dev/null; then echo "linked $file"; fi
done
for directory in /io/input /io/output /io/handoff /io/handoff/incoming /io/handoff/outgoing; do
    if mv "$directory" /io/moved 2>/dev/null; then echo "moved $directory"; fi
    if rmdir "$directory" 2>/dev/null; then echo "removed $directory"; fi
done
if mount -t tmpfs none /tmp 2>/dev/null; then echo mounted; fi
if mount -o remount,rw /io/input 2>/dev/null; then echo "remounted inputs"; fi
if mknod /workspace/device c 1 3 2>/dev/null; then echo device; fi
"#;

/// Its kernel identity, and what it sees of other processes.
const SEEING: &str = r#"
grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr '\t' ' '
echo "processes: $(for process in /proc/[0-9]*; do readlink "$process/exe" 2>/dev/null; done | sort -u | tr '\n' ' ')"
echo "devices of the network: $(tail -n +3 /proc/net/dev | cut -d : -f 1 | tr -d ' \n')"
echo "routes: $(tail -n +2 /proc/net/route | wc -l)"
echo "sockets: $(find / -xdev -type s 2>/dev/null; find /.aod -type s) of $(ls /.aod/channel)"
echo "devices: $(find /dev -type b 2>/dev/null | wc -l)"
echo "inputs: $(find /io/input -type f | tr '\n' ' ')"
for variable in $(env | cut -d = -f 1 | sort); do
    case "$variable" in
    PWD | SHLVL | OLDPWD | _) ;;
    AOD_DEADLINE | TRACEPARENT) echo "$variable is set" ;;
    *) eval "echo \"$variable=\$$variable\"" ;;
    esac
done
"#;

/// Every readable text of 64 digits, the form of a token.
const SECRETS: &str = r"
{
    env
    for process in /proc/[0-9]*; do
        cat $process/environ $process/cmdline $process/mountinfo $process/maps $process/cgroup 2>/dev/null
        ls -l $process/fd 2>/dev/null
    done | tr '\0' '\n'
    cat /proc/net/unix /proc/mounts
    grep -raoh -E '[0-9a-f]{64}' / --exclude-dir=proc 2>/dev/null ||
        find / -xdev -type f ! -path '/proc/*' ! -path '/sys/*' -exec strings -n 64 {} \; 2>/dev/null
    find /.aod /io /etc /workspace -type f -exec strings -n 64 {} \; 2>/dev/null
} | grep -oE '[0-9a-f]{64}' | sort -u >/io/output/secrets.txt
";

/// The answers of its own channel to requests that are not for capsules.
const ASKING: &str = r#"
echo '{"capsule": "reader", "arguments": {}}' >/workspace/body
{
    printf '{"runs": %s' "$(ask GET /v1/runs)"
    printf ', "new run": %s' "$(ask POST /v1/runs /workspace/body)"
    printf ', "own run": %s' "$(ask GET "/v1/runs/$AOD_RUN_ID")"
    printf ', "nodes": %s' "$(ask GET /v1/nodes)"
    printf ', "internal": %s' "$(ask GET "/internal/v1/runs/$AOD_RUN_ID/targets?attempt=1")"
    printf ', "up and down": %s' "$(ask GET /handoffs/../v1/runs)"
    printf ', "encoded": %s' "$(ask GET /handoffs/..%2fv1%2fruns)"
    printf ', "metrics": %s' "$(ask GET /metrics)"
    printf ', "visualizer": %s' "$(ask GET /visualizer/state)"
    printf ', "call of another run": %s' "$(ask GET /handoffs/NEIGHBOUR)"
    printf ', "cancelling another run": %s' "$(ask POST /handoffs/NEIGHBOUR/cancel)"
    printf ', "cancelling itself": %s' "$(ask POST "/handoffs/$AOD_RUN_ID/cancel")"
    printf ', "wrong method": %s' "$(ask GET /handoff)"
    printf ', "schema of nobody": %s}' "$(ask GET /capsules/nobody/schema)"
} | answer
"#;

/// A listener on this machine that must not hear from a capsule.
struct Outside {
    port: u16,
    addresses: Vec<Ipv4Addr>,
    heard: Arc<AtomicUsize>,
}

impl Outside {
    /// Listens on all addresses of this machine, and verifies that connections arrive.
    fn listen() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
        let port = listener.local_addr().expect("a port").port();
        let heard = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&heard);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                drop(connection);
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        let addresses = addresses();
        for &address in &addresses {
            let connected = TcpStream::connect(SocketAddr::from((address, port)));
            connected.unwrap_or_else(|error| panic!("{address} is not this machine's: {error}"));
        }
        Self {
            port,
            addresses,
            heard,
        }
    }

    /// The number of connections other than the test's own.
    fn heard(&self) -> usize {
        self.heard.load(Ordering::Relaxed) - self.addresses.len()
    }
}

/// The machine's addresses, loopback first; Docker's own bridge is one of them.
fn addresses() -> Vec<Ipv4Addr> {
    let output = Command::new("hostname").arg("-I").output();
    let output = output.expect("the command hostname is installed").stdout;
    let text = String::from_utf8(output).expect("addresses are text");
    let others = text.split_whitespace().filter_map(|word| word.parse().ok());
    std::iter::once(Ipv4Addr::LOCALHOST).chain(others).collect()
}

/// A script that connects to each of `places` and prints the answers.
fn connecting(places: &[(String, u16)]) -> String {
    let tries = places.iter().map(|(address, port)| {
        format!("echo \"{address} $(nc -w 3 {address} {port} </dev/null 2>&1)\"\n")
    });
    tries.collect()
}

/// The unreachable places, with the expected errors.
fn places(cluster: &DockerCluster, outside: &Outside) -> Vec<(String, u16)> {
    let gateway = cluster.cluster.gateways[0].url();
    let port = gateway
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok());
    let port: u16 = port.expect("a gateway listens on a port");
    let addresses = outside.addresses.iter();
    let mut places: Vec<_> = addresses
        .map(|address| (address.to_string(), outside.port))
        .collect();
    places.push(("127.0.0.1".to_owned(), port));
    places.push(("127.0.0.1".to_owned(), NEIGHBOUR_PORT));
    places.push((
        "127.0.0.1".to_owned(),
        cluster.cluster.nats.address().port(),
    ));
    places
}

fn check_connections(told: &str, places: &[(String, u16)]) {
    let expected: Vec<_> = places
        .iter()
        .map(|(address, port)| {
            let reason = match address.as_str() {
                "127.0.0.1" => "Connection refused",
                _ => "Network is unreachable",
            };
            format!("{address} nc: can't connect to remote host ({address}): {reason} {port}")
        })
        .collect();
    let told: Vec<_> = told
        .lines()
        .zip(places)
        .map(|(line, (_, port))| format!("{line} {port}"))
        .collect();
    assert_eq!(told, expected);
}

/// None of `candidates` is the token whose digest is in the log.
async fn check_token(cluster: &DockerCluster, run: &str, candidates: &str) {
    let (_, page) = cluster.client.get(&format!("/v1/runs/{run}/events")).await;
    let events = page["items"].as_array().expect("a run has events");
    let lease = events
        .iter()
        .find(|event| event["type"] == "dev.aod.run.leased.v1");
    let lease = lease.unwrap_or_else(|| panic!("no lease in {page}"));
    let digest = find(&lease["data"], "token_sha256");
    let digest = digest.unwrap_or_else(|| panic!("no token in {lease}"));
    // Control: the id of the container is such a text, and was found.
    assert!(
        candidates.lines().count() > 0,
        "nothing of 64 digits was found"
    );
    for candidate in candidates.lines() {
        assert_eq!(candidate.len(), 64, "{candidate}");
        assert_ne!(
            Digest::of(candidate).to_string(),
            digest,
            "the token can be read"
        );
    }
}

fn find(value: &Value, name: &str) -> Option<String> {
    let fields = value.as_object()?;
    fields.iter().find_map(|(key, field)| match field.as_str() {
        Some(text) if key == name => Some(text.to_owned()),
        _ => find(field, name),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn capsule_sees_and_changes_only_its_own_files() {
    let outside = Outside::listen();
    let cluster = DockerCluster::start(&["probe", "reader"]).await;
    let neighbour = cluster.start_script(NEIGHBOUR, json!({})).await;
    cluster.wait_for_line(&neighbour, "listening").await;

    let places = places(&cluster, &outside);
    let script = format!(
        "{{{WRITING}}} >/io/output/written.txt\n{{{SEEING}}} >/io/output/seen.txt\n\
         {{\n{}}} >/io/output/connections.txt\n{SECRETS}{}",
        connecting(&places),
        ASKING.replace("NEIGHBOUR", &neighbour),
    );
    let result = cluster.run_script(&script).await;
    assert_eq!(result["success"], true, "{result}");
    let run = result["id"].as_str().expect("a run has an id");

    insta::assert_snapshot!("written", cluster.file(run, "written.txt").await);
    insta::assert_snapshot!("seen", without_ids(&cluster.file(run, "seen.txt").await));
    check_connections(&cluster.file(run, "connections.txt").await, &places);
    check_token(&cluster, run, &cluster.file(run, "secrets.txt").await).await;
    insta::assert_json_snapshot!("asked", redacted(result["output"].clone()));

    let (_, logs) = cluster
        .client
        .get(&format!("/v1/runs/{neighbour}/logs"))
        .await;
    let lines: Vec<_> = logs["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| &item["text"])
        .collect();
    assert_eq!(lines, ["listening"], "the neighbour has heard somebody");
    // The log shows it a second later.
    eventually("the neighbour runs on", async || {
        let (_, view) = cluster.client.get(&format!("/v1/runs/{neighbour}")).await;
        view["state"] == "running"
    })
    .await;
    cluster.cancel(&neighbour).await;
    assert_eq!(
        cluster.client.result(&neighbour).await["state"],
        "cancelled"
    );
    assert_eq!(
        outside.heard(),
        0,
        "a capsule has reached a listener outside"
    );
}
