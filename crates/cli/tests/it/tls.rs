//! Certificates of `aod certs`, and the errors for wrong certificates.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;

use aod_testkit::{NatsConfig, NatsServer};
use serde_json::Value;

use crate::cluster::{Ended, program, wait_until};

/// A broker and a gateway with TLS, certificates and credentials; Drop stops both.
struct Secured {
    directory: tempfile::TempDir,
    nats: NatsServer,
    gateway: Option<Child>,
}

impl Drop for Secured {
    fn drop(&mut self) {
        if let Some(gateway) = &mut self.gateway {
            let _ = gateway.kill();
            let _ = gateway.wait();
        }
    }
}

fn aod(arguments: &[&str]) -> Ended {
    program()
        .args(arguments)
        .output()
        .expect("the program starts")
        .into()
}

/// Creates an authority and a certificate for this host in `directory`.
fn certs(directory: &Path, more: &[&str]) -> Value {
    let path = directory.display().to_string();
    let arguments = [&["certs", &path, "--format", "json"], more].concat();
    aod(&arguments).with(0).json()
}

impl Secured {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        certs(directory.path(), &["--host", "broker.example.net"]);
        aod(&["credentials", &directory.path().display().to_string()]).with(0);
        let users = fs::read_to_string(path("nats-users.conf")).expect("users");
        let tls = format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\" }}\n",
            path("server.crt").display(),
            path("server.key").display()
        );
        let nats = NatsServer::start(NatsConfig {
            extra: users + &tls,
            ..NatsConfig::default()
        });
        Self {
            directory,
            nats,
            gateway: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The arguments of a gateway, without its TLS certificate.
    fn gateway_arguments(&self, authority: &Path, listen: &str) -> Vec<String> {
        let arguments = [
            ("--nats", self.nats.url().replace("nats://", "tls://")),
            ("--nats-ca", authority.display().to_string()),
            ("--nats-credentials", self.text("nats-gateway.creds")),
            ("--store", format!("file://{}", self.text("artifacts"))),
            ("--data", self.text("gateway")),
            ("--token-file", self.text("token")),
            ("--listen", format!("{listen}:0")),
        ];
        let flat = arguments
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value]);
        std::iter::once("gateway".to_owned()).chain(flat).collect()
    }

    /// Starts the gateway; returns its port.
    fn start_gateway(&mut self, listen: &str, is_secured: bool) -> u16 {
        let mut arguments = self.gateway_arguments(&self.path("ca.crt"), listen);
        if is_secured {
            let tls = [
                ("--tls-certificate", "server.crt"),
                ("--tls-key", "server.key"),
            ];
            arguments.extend(
                tls.into_iter()
                    .flat_map(|(flag, name)| [flag.to_owned(), self.text(name)]),
            );
        }
        let log = self.path("log");
        let mut command = program();
        command
            .args(["--log-format", "json"])
            .args(arguments)
            .stderr(File::create(&log).expect("a file of ours"));
        self.gateway = Some(command.spawn().expect("the program starts"));
        let mut port = None;
        wait_until("the gateway", || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            port = text.lines().find_map(|line| {
                let entry: Value = serde_json::from_str(line).ok()?;
                let address = entry.pointer("/fields/local_addr")?.as_str()?.to_owned();
                address.rsplit(':').next()?.parse().ok()
            });
            port.is_some()
        });
        port.expect("it was waited for")
    }

    /// Lists the nodes of the gateway.
    fn ask(&self, url: &str, authority: Option<&Path>) -> Ended {
        let mut command = program();
        command.args([
            "nodes",
            "ls",
            "--url",
            url,
            "--token-file",
            &self.text("token"),
        ]);
        if let Some(path) = authority {
            command.arg("--certificate-authority").arg(path);
        }
        command.output().expect("the program starts").into()
    }
}

/// Asserts that the error names its cause, and its hint the fix.
#[track_caller]
fn assert_refused(ended: Ended, code: i32, why: &str, hint: &str) {
    let error = ended.with(code).stderr;
    assert!(error.contains(why), "{why}: {error}");
    let hinted = error.split_once("hint: ").expect("a hint").1;
    assert!(hinted.contains(hint), "{hint}: {error}");
}

#[test]
fn certs_creates_authority_and_renews_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let mode = |name: &str| {
        let metadata = fs::metadata(directory.path().join(name)).expect(name);
        metadata.permissions().mode() & 0o777
    };
    let made = certs(
        directory.path(),
        &["--host", "192.0.2.1", "--host", "control.example.net"],
    );
    assert_eq!(made["made"].as_array().map(Vec::len), Some(5), "{made}");
    for (name, expected) in [
        ("ca.crt", 0o644),
        ("ca.key", 0o600),
        ("server.crt", 0o644),
        ("server.key", 0o600),
        ("server.hosts", 0o644),
    ] {
        assert_eq!(mode(name), expected, "{name}");
    }
    let before = fs::read_to_string(directory.path().join("server.crt")).expect("a certificate");
    let made = certs(directory.path(), &[]);
    assert_eq!(made["made"].as_array().map(Vec::len), Some(2), "{made}");
    let after = fs::read_to_string(directory.path().join("server.crt")).expect("a certificate");
    assert_ne!(before, after);

    // Without the key of the authority, the command fails.
    fs::rename(
        directory.path().join("ca.key"),
        directory.path().join("away"),
    )
    .expect("a file of ours");
    let path = directory.path().display().to_string();
    assert_refused(aod(&["certs", &path]), 2, "only one of", "--authority");
}

#[test]
fn client_trusts_gateway_certificate_only_by_its_authority() {
    let mut secured = Secured::start();
    let authority = secured.path("ca.crt");
    let port = secured.start_gateway("127.0.0.1", true);
    let url = format!("https://127.0.0.1:{port}");
    secured.ask(&url, Some(&authority)).with(0);
    secured
        .ask(&format!("https://localhost:{port}"), Some(&authority))
        .with(0);

    let other = tempfile::tempdir().expect("a directory");
    certs(other.path(), &[]);
    let wrong = other.path().join("ca.crt");
    assert_refused(
        secured.ask(&url, Some(&wrong)),
        3,
        "UnknownIssuer",
        "you do not trust",
    );
    assert_refused(
        secured.ask(&url, None),
        3,
        "UnknownIssuer",
        "AOD_CERTIFICATE_AUTHORITY",
    );
    let plain = format!("http://127.0.0.1:{port}");
    assert_refused(secured.ask(&plain, None), 3, "it requires TLS", "https://");

    // The gateway loads an expired certificate without a restart, and then the renewed one.
    let pem = |name: &str| fs::read_to_string(secured.path(name)).expect("a file of ours");
    let valid = pem("server.crt");
    fs::write(
        secured.path("server.crt"),
        expired(&pem("ca.key"), &pem("server.key")),
    )
    .expect("a file of ours");
    assert_refused(
        secured.ask(&url, Some(&authority)),
        3,
        "expired",
        "renew its certificate",
    );
    certs(secured.directory.path(), &[]);
    assert_ne!(pem("server.crt"), valid);
    secured.ask(&url, Some(&authority)).with(0);
    // After an invalid file, the gateway keeps the previous certificate.
    fs::write(secured.path("server.crt"), "rubbish").expect("a file of ours");
    secured.ask(&url, Some(&authority)).with(0);
}

#[test]
fn certs_without_authority_key_keeps_the_existing_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let ask = |hosts: &[&str]| -> Ended {
        let mut command = program();
        command.arg("certs").arg(directory.path());
        let output = command.args(hosts).output();
        output.expect("the program starts").into()
    };
    ask(&["--host=control"]).with(0);
    let certificate = directory.path().join("server.crt");
    let issued = fs::read(&certificate).expect("a file of aod's");
    fs::remove_file(directory.path().join("ca.key")).expect("a file of aod's");
    let unsigned = ask(&["--host=control"]).with(0);
    assert!(unsigned.stderr.contains("ca.key"), "{}", unsigned.stderr);
    assert_eq!(fs::read(&certificate).expect("a file of aod's"), issued);
    ask(&["--host=control", "--host=other"]).with(2);
}

#[test]
fn client_rejects_gateway_with_another_name_or_without_tls() {
    let mut secured = Secured::start();
    let authority = secured.path("ca.crt");
    // A loopback address that the certificate does not contain.
    let port = secured.start_gateway("127.0.0.2", true);
    let url = format!("https://127.0.0.2:{port}");
    assert_refused(
        secured.ask(&url, Some(&authority)),
        3,
        "127.0.0.2",
        "aod certs DIR --host",
    );
    let mut plain = Secured::start();
    let port = plain.start_gateway("127.0.0.1", false);
    let url = format!("https://127.0.0.1:{port}");
    let authority = plain.path("ca.crt");
    assert_refused(
        plain.ask(&url, Some(&authority)),
        3,
        "InvalidContentType",
        "http://",
    );
}

#[test]
fn gateway_rejects_broker_with_foreign_or_expired_certificate() {
    let mut secured = Secured::start();
    let other = tempfile::tempdir().expect("a directory");
    certs(other.path(), &[]);
    let start = |arguments: &[String]| -> Ended {
        let output = program().args(arguments).output();
        output.expect("the program starts").into()
    };
    let wrong = secured.gateway_arguments(&other.path().join("ca.crt"), "127.0.0.1");
    assert_refused(start(&wrong), 6, "UnknownIssuer", "--nats-ca");
    let pem = |name: &str| fs::read_to_string(secured.path(name)).expect("a file of ours");
    let expired = expired(&pem("ca.key"), &pem("server.key"));
    fs::write(secured.path("server.crt"), expired).expect("a file of ours");
    secured.nats.restart();
    let right = secured.gateway_arguments(&secured.path("ca.crt"), "127.0.0.1");
    assert_refused(start(&right), 6, "expired", "renew its certificate");
}

/// A certificate for loopback that expired in 2021.
fn expired(authority_key: &str, key: &str) -> String {
    let read = |text: &str| rcgen::KeyPair::from_pem(text).expect("a key");
    let params = |names: Vec<String>| rcgen::CertificateParams::new(names).expect("names of hosts");
    let mut authority = params(Vec::new());
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    authority.distinguished_name = rcgen::DistinguishedName::new();
    let signing = read(authority_key);
    let digest =
        aod_domain::digest::Digest::of(rcgen::PublicKeyData::subject_public_key_info(&signing));
    let name = format!("AOD authority {}", &digest.to_string()[..16]);
    authority
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let mut server = params(vec!["127.0.0.1".to_owned()]);
    server.not_before = rcgen::date_time_ymd(2020, 1, 1);
    server.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let issuer = rcgen::Issuer::new(authority, signing);
    server
        .signed_by(&read(key), &issuer)
        .expect("a certificate")
        .pem()
}
