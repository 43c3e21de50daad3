//! Egress of a container without a network: which hosts it reaches, whatever names and redirects say. Nothing leaves
//! the machine: names and connections are those of a double.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use aod_domain::capsule::Needs;
use aod_ports::network::{Connection, Network};
use aod_tests::docker_cluster::DockerCluster;
use async_trait::async_trait;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The address of all names that resolve; nothing connects to it.
const PUBLIC: [u8; 4] = [93, 184, 216, 34];

/// A host at [`PUBLIC`]: answers `/` with "hello", and everything else with a redirect to another host.
async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => request.push(byte),
                    Err(_) => return,
                }
            }
            let answer = if request.starts_with(b"GET / ") {
                "HTTP/1.0 200 OK\r\n\r\nhello\n"
            } else {
                "HTTP/1.0 302 Found\r\nLocation: https://elsewhere.example.net/\r\n\r\n"
            };
            let _ = stream.write_all(answer.as_bytes()).await;
        });
    }
}

/// Names with changing addresses, and one host at all addresses.
#[derive(Debug)]
struct Double {
    host: SocketAddr,
    answers: Mutex<BTreeMap<&'static str, VecDeque<IpAddr>>>,
    connected: Mutex<Vec<SocketAddr>>,
}

#[async_trait]
impl Network for Double {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let mut answers = self.answers.lock().expect("a lock");
        let answer = answers.get_mut(name).and_then(VecDeque::pop_front);
        Ok(answer.into_iter().collect())
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn Connection>> {
        self.connected.lock().expect("a lock").push(address);
        Ok(Box::new(TcpStream::connect(self.host).await?))
    }
}

/// Each line: the attempt and its result.
const SCRIPT: &str = r#"
# talk REQUEST...: sends the lines to the channel, and prints all that comes back. Both ends stay open, as
# those of any client that waits for an answer.
talk() {
    rm -f /workspace/request
    mkfifo /workspace/request
    exec 3<>/workspace/request
    nc 127.0.0.1 8700 </workspace/request >/workspace/response &
    for line in "$@"; do printf '%s\r\n' "$line"; done >/workspace/request
    wait $!
    tr -d '\r' </workspace/response
}
# fetch PLACE PATH: as a client with a proxy does.
fetch() {
    talk "CONNECT $1 HTTP/1.0" "Host: $1" "" "GET $2 HTTP/1.0" "Host: $1" ""
}
try() {
    echo "$1: $(fetch "$1" / | grep -E '^HTTP|hello' | head -n 3 | tr '\n' ' ')"
}
{
    try api.example.com:443
    try api.example.com:80
    try elsewhere.example.net:443
    try 93.184.216.34:443
    try 169.254.169.254:80
    try 127.0.0.1:8700
    location="$(fetch api.example.com:443 /away | sed -n 's|^Location: https://\(.*\)/$|\1|p')"
    echo "redirected to $location"
    try "$location:443"
    try rebind.example.com:443
    try rebind.example.com:443
    echo "plain: $(talk 'GET http://api.example.com/ HTTP/1.0' '' | head -n 1)"
    env | grep -i proxy | sort
} >/io/output/report.txt
echo '{"report": "report.txt"}' | answer
"#;

fn refused(place: &str, reason: &str) -> String {
    format!("{place}: HTTP/1.0 403 egress_refused: {place}{reason} ")
}

#[tokio::test(flavor = "multi_thread")]
async fn capsule_reaches_only_the_hosts_in_its_egress_list() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let host = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener));
    let public = IpAddr::from(PUBLIC);
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let network = Arc::new(Double {
        host,
        answers: Mutex::new(BTreeMap::from([
            ("api.example.com", VecDeque::from([public, public])),
            ("elsewhere.example.net", VecDeque::from([public; 9])),
            ("rebind.example.com", VecDeque::from([public, loopback])),
        ])),
        connected: Mutex::default(),
    });
    let rules = ["api.example.com", "rebind.example.com"];
    let needs = Needs {
        egress: rules.map(|rule| rule.parse().expect("a permission")).into(),
        ..Needs::default()
    };
    let given = Arc::clone(&network);
    let cluster = DockerCluster::start_with_needs(&["probe"], &needs, |cluster| {
        cluster.egress = vec!["*".parse().expect("a permission")];
        cluster.network = given;
    })
    .await;
    let result = cluster.run_script(SCRIPT).await;
    assert_eq!(result["success"], true, "{result}");
    let run = result["id"].as_str().expect("a run has an id");

    let not_listed = " is not in the list \"egress\" of the capsule's agent.yaml, which lists \
                      api.example.com:443, rebind.example.com:443";
    let rebound = ": HTTP/1.0 403 egress_refused: rebind.example.com has no public address: \
                   127.0.0.1 is loopback ";
    let expected = [
        "api.example.com:443: HTTP/1.0 200 OK HTTP/1.0 200 OK hello ".to_owned(),
        refused("api.example.com:80", not_listed),
        refused("elsewhere.example.net:443", not_listed),
        refused("93.184.216.34:443", not_listed),
        refused("169.254.169.254:80", not_listed),
        refused("127.0.0.1:8700", not_listed),
        "redirected to elsewhere.example.net".to_owned(),
        refused("elsewhere.example.net:443", not_listed),
        "rebind.example.com:443: HTTP/1.0 200 OK HTTP/1.0 200 OK hello ".to_owned(),
        format!("rebind.example.com:443{rebound}"),
        "plain: HTTP/1.0 403 egress_refused: the proxy of a capsule supports CONNECT only, not GET \
         http://api.example.com/; use https://"
            .to_owned(),
        "HTTPS_PROXY=http://127.0.0.1:8700".to_owned(),
        "HTTP_PROXY=http://127.0.0.1:8700".to_owned(),
        "NO_PROXY=127.0.0.1,localhost".to_owned(),
        "https_proxy=http://127.0.0.1:8700".to_owned(),
        "no_proxy=127.0.0.1,localhost".to_owned(),
    ];
    let report = cluster.file(run, "report.txt").await;
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines, expected);

    let connected = network.connected.lock().expect("a lock").clone();
    assert_eq!(connected, [SocketAddr::new(public, 443); 3]);
    let used = &result["usage"]["egress"];
    assert_eq!(
        (&used["connections"], &used["refused"]),
        (&3.into(), &8.into())
    );
    check_notes(&cluster, run, used).await;
}

/// Each connection and each rejection is an event, and the sums are those of the result.
async fn check_notes(cluster: &DockerCluster, run: &str, used: &Value) {
    let (_, page) = cluster.client.get(&format!("/v1/runs/{run}/events")).await;
    let events = page["items"].as_array().expect("a run has events");
    let of = |kind: &str| {
        let kind = format!("dev.aod.run.{kind}.v1");
        let data = events
            .iter()
            .filter(move |event| event["type"] == kind.as_str());
        data.map(|event| event["data"].clone()).collect::<Vec<_>>()
    };
    let connections = of("egress_closed");
    let sum = |name: &str| -> u64 {
        let bytes = connections.iter().map(|data| data[name].as_u64());
        bytes.map(|bytes| bytes.expect("a number")).sum()
    };
    assert_eq!(connections.len(), 3, "{page}");
    assert_eq!(connections[0]["host"], "api.example.com");
    assert_eq!(connections[0]["address"], "93.184.216.34");
    assert_eq!(connections[0]["bytes_received"], 25);
    assert_eq!(used["bytes_sent"], sum("bytes_sent"));
    assert_eq!(used["bytes_received"], sum("bytes_received"));
    let refusals = of("egress_refused");
    assert_eq!(refusals.len(), 8, "{page}");
    assert_eq!(refusals[0]["host"], "api.example.com");
    assert_eq!(
        (&refusals[0]["port"], &refusals[0]["code"]),
        (&80.into(), &"egress_refused".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn capsule_without_egress_list_gets_the_reason_and_its_operator_an_event() {
    let cluster = DockerCluster::start_with_needs(&["probe"], &Needs::default(), |cluster| {
        cluster.egress = vec!["*".parse().expect("a permission")];
    })
    .await;
    let script = format!(
        "{}\n{{ try api.example.com:443; env | grep -ci proxy; }} >/io/output/report.txt\n\
         echo '{{\"report\": \"report.txt\"}}' | answer",
        SCRIPT.split("\n{\n").next().expect("the functions")
    );
    let result = cluster.run_script(&script).await;
    let run = result["id"].as_str().expect("a run has an id");
    let report = cluster.file(run, "report.txt").await;
    let expected = refused(
        "api.example.com:443",
        " is not in the list \"egress\" of the capsule's agent.yaml, which lists nothing",
    );
    assert_eq!(report, format!("{expected}\n5\n"));
    let (_, page) = cluster.client.get(&format!("/v1/runs/{run}/events")).await;
    let events = page["items"].as_array().expect("a run has events");
    let is_refusal = |event: &&Value| event["type"] == "dev.aod.run.egress_refused.v1";
    assert_eq!(events.iter().filter(is_refusal).count(), 1, "{page}");
}
