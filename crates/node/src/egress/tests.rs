//! The proxy as an HTTP client sees it, over a fake network.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use aod_domain::error_code::ErrorCode;
use async_trait::async_trait;
use axum::http::Request;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio::sync::mpsc;

use super::proxy::{Slot, answer, target};
use super::*;

const PUBLIC: &str = "93.184.216.34";

/// A network whose names return their answers in turn, and whose hosts accept every connection.
#[derive(Debug)]
struct Double {
    answers: Mutex<BTreeMap<&'static str, VecDeque<Vec<IpAddr>>>>,
    hosts: mpsc::UnboundedSender<(SocketAddr, DuplexStream)>,
}

#[async_trait]
impl Network for Double {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let mut answers = self.answers.lock().unwrap();
        let answer = answers.get_mut(name).and_then(VecDeque::pop_front);
        answer.ok_or_else(|| io::Error::other("no such name"))
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn Connection>> {
        let (ours, theirs) = tokio::io::duplex(1024);
        self.hosts
            .send((address, theirs))
            .map_err(io::Error::other)?;
        Ok(Box::new(ours))
    }
}

struct Outside {
    egress: Arc<Egress>,
    hosts: mpsc::UnboundedReceiver<(SocketAddr, DuplexStream)>,
}

/// The egress of a capsule that lists `listed`, on a node that permits everything; `names` return answers in turn.
fn outside(listed: &[&str], names: &[(&'static str, &[&[&str]])]) -> Outside {
    let addresses = |texts: &&[&str]| {
        texts
            .iter()
            .map(|text| text.parse().unwrap())
            .collect::<Vec<IpAddr>>()
    };
    let answers = names
        .iter()
        .map(|(name, answers)| (*name, answers.iter().map(addresses).collect()))
        .collect();
    let (sender, hosts) = mpsc::unbounded_channel();
    let network = Double {
        answers: Mutex::new(answers),
        hosts: sender,
    };
    let egress = Egress::new(
        listed.iter().map(|rule| rule.parse().unwrap()).collect(),
        vec!["*".parse().unwrap()],
        Arc::new(network),
        FactNotes::dropped(),
    );
    Outside { egress, hosts }
}

/// The answer to a request: the first line, the body, and its connection.
struct Answer {
    line: String,
    body: Value,
    stream: BufReader<DuplexStream>,
}

impl Outside {
    async fn ask(&self, request: &str) -> Answer {
        let (capsule, channel) = tokio::io::duplex(1024);
        let egress = Arc::clone(&self.egress);
        tokio::spawn(async move {
            let slot = Slot::default();
            let service = service_fn(|request: Request<_>| {
                let target = target(&request).expect("a request for a proxy");
                answer(Arc::clone(&egress), target, request, slot.clone())
            });
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(channel), service)
                .with_upgrades();
            let _ = served.await;
            slot.carry().await;
        });
        let mut stream = BufReader::new(capsule);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let mut length = 0;
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await.unwrap();
            if let Some(text) = header.to_lowercase().strip_prefix("content-length: ") {
                length = text.trim().parse().unwrap();
            }
            if header.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        Answer {
            line: line.trim().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            stream,
        }
    }

    async fn connect(&self, place: &str) -> Answer {
        self.ask(&format!(
            "CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"
        ))
        .await
    }

    /// Requests `place`, and expects a refusal with `code` without any connection.
    async fn refused(&mut self, place: &str, status: u16, code: ErrorCode) -> String {
        let answer = self.connect(place).await;
        let beginning = format!("HTTP/1.1 {status} {code}: ");
        assert!(
            answer.line.starts_with(&beginning),
            "{place}: {}",
            answer.line
        );
        assert_eq!(answer.body["code"], code.as_str(), "{place}");
        assert!(self.hosts.try_recv().is_err(), "{place}");
        answer.body["detail"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn tunnel_carries_and_counts_bytes_both_ways() {
    let mut outside = outside(
        &["api.example.com"],
        &[("api.example.com", &[&["10.0.0.1", PUBLIC, "1.1.1.1"]])],
    );
    let mut answer = outside.connect("API.example.com:443").await;
    assert_eq!(answer.line, "HTTP/1.1 200 OK");
    let (address, mut host) = outside.hosts.recv().await.unwrap();
    assert_eq!(address.to_string(), format!("{PUBLIC}:443"));
    answer.stream.write_all(b"question").await.unwrap();
    let mut question = [0; 8];
    host.read_exact(&mut question).await.unwrap();
    assert_eq!(&question, b"question");
    host.write_all(b"the answer").await.unwrap();
    drop(host);
    let mut text = String::new();
    answer.stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "the answer");
    let used = outside.egress.close().await.unwrap();
    let expected = EgressUsage {
        connections: 1,
        refused: 0,
        bytes_sent: 8,
        bytes_received: 10,
    };
    assert_eq!(used, expected);
}

#[tokio::test]
async fn unlisted_host_is_refused_without_name_lookup() {
    let mut outside = outside(&["api.example.com"], &[("evil.org", &[&[PUBLIC]])]);
    for place in ["evil.org:443", "api.example.com:80", "93.184.216.34:443"] {
        let text = outside.refused(place, 403, ErrorCode::EgressRefused).await;
        assert!(
            text.starts_with(place) && text.contains("api.example.com:443"),
            "{text}"
        );
    }
    let Outside { egress, .. } = &outside;
    assert!(
        egress.network.resolve("evil.org").await.is_ok(),
        "the proxy resolved the name"
    );
    assert_eq!(egress.close().await.unwrap().refused, 3);
}

#[tokio::test]
async fn listed_host_without_permission_of_operator_is_refused() {
    let (sender, hosts) = mpsc::unbounded_channel();
    let network = Double {
        answers: Mutex::default(),
        hosts: sender,
    };
    let listed = vec!["api.example.com".parse().unwrap()];
    let egress = Egress::new(listed, Vec::new(), Arc::new(network), FactNotes::dropped());
    let mut outside = Outside { egress, hosts };
    let text = outside
        .refused("api.example.com:443", 403, ErrorCode::EgressRefused)
        .await;
    assert!(text.contains("--egress"), "{text}");
}

#[tokio::test]
async fn name_that_rebinds_to_loopback_is_refused() {
    let names: &[&[&str]] = &[&[PUBLIC], &["127.0.0.1", "169.254.169.254"]];
    let mut outside = outside(&["rebind.example.com"], &[("rebind.example.com", names)]);
    let answer = outside.connect("rebind.example.com:443").await;
    assert_eq!(answer.line, "HTTP/1.1 200 OK");
    let (address, _) = outside.hosts.recv().await.unwrap();
    assert_eq!(address.ip().to_string(), PUBLIC);
    let text = outside
        .refused("rebind.example.com:443", 403, ErrorCode::EgressRefused)
        .await;
    assert!(text.ends_with("127.0.0.1 is loopback"), "{text}");
}

#[tokio::test]
async fn address_is_reached_only_if_listed_as_address() {
    let mut outside = outside(&["93.184.216.34:80", "*.example.com"], &[]);
    let answer = outside.connect("93.184.216.34:80").await;
    assert_eq!(answer.line, "HTTP/1.1 200 OK");
    assert!(outside.hosts.recv().await.is_some());
    for place in [
        "1.1.1.1:443",
        "127.0.0.1:8700",
        "[::1]:443",
        "[::ffff:93.184.216.34]:80",
        "localhost:80",
        "127.1:443",
        "0x7f.0.0.1:443",
        "2130706433:443",
    ] {
        outside.refused(place, 403, ErrorCode::EgressRefused).await;
    }
}

#[tokio::test]
async fn host_without_address_is_unreachable_and_not_counted_as_refused() {
    let mut outside = outside(&["*.example.com"], &[("empty.example.com", &[&[]])]);
    for place in ["nobody.example.com:443", "empty.example.com:443"] {
        let text = outside
            .refused(place, 502, ErrorCode::EgressUnreachable)
            .await;
        assert!(text.starts_with(place), "{text}");
    }
    assert_eq!(outside.egress.close().await.unwrap().refused, 0);
}

#[tokio::test]
async fn plain_http_request_is_refused_with_a_hint() {
    let outside = outside(
        &["api.example.com:80"],
        &[("api.example.com", &[&[PUBLIC]])],
    );
    let answer = outside
        .ask("GET http://api.example.com/path HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
        .await;
    assert!(
        answer.line.starts_with("HTTP/1.1 403 egress_refused: "),
        "{}",
        answer.line
    );
    let text = answer.body["detail"].as_str().unwrap();
    assert!(
        text.contains("CONNECT only") && text.contains("use https://"),
        "{text}"
    );
}

#[test]
fn request_for_the_channel_is_not_proxied() {
    let target_of = |method: &str, uri: &str| {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        target(&request)
    };
    for uri in [
        "/handoff",
        "http://127.0.0.1:8700/handoff",
        "http://localhost:8700/health",
    ] {
        assert!(target_of("POST", uri).is_none(), "{uri}");
    }
    assert!(target_of("GET", "http://example.com/").is_some());
    assert!(target_of("CONNECT", "127.0.0.1:8700").is_some());
}

#[tokio::test]
async fn connect_without_bare_host_and_port_is_rejected() {
    let mut outside = outside(&["example.com"], &[]);
    for place in ["example.com", "user@example.com:443", "example.com:0"] {
        let answer = outside.connect(place).await;
        assert!(
            answer.line.starts_with("HTTP/1.1 400 "),
            "{place}: {}",
            answer.line
        );
        assert!(outside.hosts.try_recv().is_err());
    }
}

#[tokio::test]
async fn end_of_run_closes_open_tunnels_and_rejects_new_ones() {
    let mut outside = outside(
        &["api.example.com"],
        &[("api.example.com", &[&[PUBLIC], &[PUBLIC]])],
    );
    let mut answer = outside.connect("api.example.com:443").await;
    let (_, mut host) = outside.hosts.recv().await.unwrap();
    host.write_all(b"half").await.unwrap();
    let mut half = [0; 4];
    answer.stream.read_exact(&mut half).await.unwrap();
    let used = outside.egress.close().await.unwrap();
    assert_eq!((used.connections, used.bytes_received), (1, 4));
    assert_eq!(host.read(&mut half).await.unwrap(), 0);
    assert_eq!(answer.stream.read(&mut half).await.unwrap(), 0);
    let late = outside.connect("api.example.com:443").await;
    assert!(
        late.line.starts_with("HTTP/1.1 409 run_ended"),
        "{}",
        late.line
    );
}

#[tokio::test]
async fn capsule_without_egress_list_reports_no_usage() {
    let outside = outside(&[], &[]);
    assert_eq!(outside.egress.close().await, None);
}
