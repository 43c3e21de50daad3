//! TLS between all programs of a cluster: a tapped link reveals no payload.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_domain::admission::Capacity;
use aod_gateway::Tls;
use aod_testkit::{NatsConfig, NatsServer};
use aod_tests::cluster::{Cluster, Ways, any_schema, limits};
use aod_tests::recorder::Recorder;
use aod_tests::simulated::runtime;
use serde_json::json;
use tempfile::TempDir;

use super::rights::{callee, caller};

/// The payload on every link: in arguments, calls and answers.
const SAID: &str = "the-words-that-nobody-else-is-to-read";

/// An authority and a certificate for loopback, in files.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let draw = || rcgen::KeyPair::generate().expect("a key");
        let params = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            rcgen::CertificateParams::new(names).expect("names of hosts")
        };
        let (authority_key, key) = (draw(), draw());
        let mut authority = params(&[]);
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let signed = authority
            .self_signed(&authority_key)
            .expect("a certificate");
        let write = |name: &str, text: String| fs::write(directory.path().join(name), text);
        write("ca.crt", signed.pem()).expect("a test file");
        let issuer = rcgen::Issuer::new(authority, authority_key);
        let server = params(&["localhost", "127.0.0.1"]).signed_by(&key, &issuer);
        write("server.crt", server.expect("a certificate").pem()).expect("a test file");
        write("server.key", key.serialize_pem()).expect("a test file");
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn of_broker(&self) -> String {
        let quoted = |path: &Path| format!("\"{}\"", path.display());
        format!(
            "tls {{ cert_file: {}, key_file: {} }}\n",
            quoted(&self.path("server.crt")),
            quoted(&self.path("server.key"))
        )
    }
}

/// Runs a capsule on one host that calls one on another; returns whether the links to the broker and to the gateway
/// revealed the payload.
async fn overheard(certificates: Option<&Certificates>) -> [bool; 2] {
    let tls = certificates.map_or_else(String::new, Certificates::of_broker);
    let nats = NatsServer::start(NatsConfig {
        extra: limits() + &tls,
        ..NatsConfig::default()
    });
    let (to_broker, to_gateway) = (Recorder::start().await, Recorder::start().await);
    to_broker.lead_to(nats.address());
    let scheme = if certificates.is_some() {
        "https"
    } else {
        "http"
    };
    let ways = Ways {
        broker_url: Some(format!("nats://{}", to_broker.address())),
        limited: true,
        authority: certificates.map(|certificates| certificates.path("ca.crt")),
        tls: certificates.map(|certificates| {
            let (certificate, key) = (
                certificates.path("server.crt"),
                certificates.path("server.key"),
            );
            Arc::new(Tls::load(&certificate, &key).expect("a certificate"))
        }),
        gateway_url: Some(format!("{scheme}://{}", to_gateway.address())),
    };
    let mut cluster = Cluster::start_on(nats, ways, 1).await;
    to_gateway.lead_to(cluster.gateways[0].local_addr());
    let capacity = Capacity {
        slots: 2,
        containers_max: 16,
        memory_bytes: 4 << 30,
    };
    for (pool, name, command) in [("any", "caller", caller()), ("other", "callee", callee())] {
        cluster
            .add_node(&[pool], capacity, runtime([(name.to_owned(), command)]))
            .await;
        cluster.register_on(name, pool, &any_schema()).await;
    }
    let client = cluster.client(0);
    let run = client.start("caller", json!({"text": SAID})).await;
    let result = client.result(&run).await;
    assert_eq!(result["output"]["text"], SAID, "{result}");
    let links = [&to_broker, &to_gateway];
    assert!(links.iter().all(|link| link.size_bytes() > 1_000));
    links.map(|link| link.heard(SAID))
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_between_hosts_is_unreadable_on_the_wire() {
    // Control: without TLS, the recorders see the payload.
    assert_eq!(overheard(None).await, [true, true]);
    assert_eq!(overheard(Some(&Certificates::new())).await, [false, false]);
}
