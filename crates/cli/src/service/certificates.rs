//! The private certificate authority of a cluster, and its certificates.
//!
//! ```text
//! ca.crt   the authority, trusted by all programs      <name>.crt     a certificate
//! ca.key   its key; may be stored elsewhere            <name>.key     its key; a renewal keeps it
//!                                                      <name>.hosts   its host names, one per line
//! ```

mod refusal;

use std::fs;
use std::path::{Path, PathBuf};

use aod_domain::digest::Digest;
use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};

pub(crate) use self::refusal::hint_of_refusal;
use super::data;
use crate::failure::Failure;

/// Validity of an authority, in days: ten years, because all programs must be configured with its successor.
const AUTHORITY_DAYS: u16 = 3_652;

/// Loopback names, included in every certificate.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// An authority that can sign.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: PathBuf,
}

impl Authority {
    /// Reads the authority in `directory`, or creates one. Returns it with the created files.
    pub fn ensure(directory: &Path) -> Result<(Self, Vec<PathBuf>), Failure> {
        data::make_directory(directory)?;
        let (certificate, key) = (directory.join("ca.crt"), directory.join("ca.key"));
        let mut made = Vec::new();
        match (certificate.exists(), key.exists()) {
            (true, true) => (),
            (false, false) => {
                let drawn = KeyPair::generate().map_err(|error| impossible(&error))?;
                let params = authority_params(&drawn)?;
                let signed = params
                    .self_signed(&drawn)
                    .map_err(|error| impossible(&error))?;
                data::write_private(&key, &drawn.serialize_pem())?;
                data::write_public(&certificate, &signed.pem())?;
                made.extend([certificate.clone(), key.clone()]);
            }
            _ => {
                let message = format!(
                    "{} contains only one of ca.crt and ca.key; expected both or neither",
                    directory.display()
                );
                return Err(Failure::usage(message).with_hint(
                    "if the key is stored elsewhere, pass that directory with --authority",
                ));
            }
        }
        let key = read_key(&key)?;
        let issuer = Issuer::new(authority_params(&key)?, key);
        let authority = Self {
            issuer,
            certificate,
        };
        Ok((authority, made))
    }

    /// Copies `ca.crt` to `directory`; returns its path if the file is new or changed.
    pub fn copy_to(&self, directory: &Path) -> Result<Option<PathBuf>, Failure> {
        data::make_directory(directory)?;
        let copy = directory.join("ca.crt");
        let text = read_text(&self.certificate)?;
        if fs::read_to_string(&copy).is_ok_and(|found| found == text) {
            return Ok(None);
        }
        data::write_public(&copy, &text)?;
        Ok(Some(copy))
    }
}

/// Whether `directory` has the key of an authority.
pub fn has_key(directory: &Path) -> bool {
    directory.join("ca.key").exists()
}

/// Whether `directory` has `ca.crt`, and the certificate `name` for all of `hosts`.
pub fn is_issued(directory: &Path, name: &str, hosts: &[String]) -> bool {
    let has = |file: &str| directory.join(file).exists();
    let listed = fs::read_to_string(directory.join(format!("{name}.hosts"))).unwrap_or_default();
    let is_for = |host: &String| listed.lines().any(|listed| listed == host);
    has("ca.crt") && has(&format!("{name}.crt")) && !hosts.is_empty() && hosts.iter().all(is_for)
}

/// Issues the certificate `name` for `hosts`; returns the written files.
pub fn issue(
    authority: &Authority,
    directory: &Path,
    name: &str,
    hosts: &[String],
    days: u16,
) -> Result<Vec<PathBuf>, Failure> {
    if !data::is_plain_name(name) || name == "ca" {
        let message = format!(
            "invalid certificate name {name:?}: expected letters, digits, - and _, and not ca"
        );
        return Err(Failure::usage(message));
    }
    let refused: Vec<String> = hosts
        .iter()
        .filter(|host| !is_host(host))
        .map(|host| format!("invalid host {host:?}: expected a host name or an IP address"))
        .collect();
    if !refused.is_empty() {
        return Err(Failure::usage("cannot issue the certificate").with_details(refused));
    }
    let (certificate, key) = (
        directory.join(format!("{name}.crt")),
        directory.join(format!("{name}.key")),
    );
    let listed = directory.join(format!("{name}.hosts"));
    let mut made = Vec::new();
    // Running programs have read the key, so a renewed certificate keeps it.
    if !key.exists() {
        let drawn = KeyPair::generate().map_err(|error| impossible(&error))?;
        data::write_private(&key, &drawn.serialize_pem())?;
        made.push(key.clone());
    }
    let key = read_key(&key)?;
    let params = server_params(name, hosts, days)?;
    let signed = params.signed_by(&key, &authority.issuer);
    let signed = signed.map_err(|error| impossible(&error))?;
    data::write_public(&listed, &format!("{}\n", hosts.join("\n")))?;
    data::write_public(&certificate, &signed.pem())?;
    made.extend([certificate, listed]);
    Ok(made)
}

/// Renews all certificates in `directory`, for the same host names.
pub fn renew_all(
    authority: &Authority,
    directory: &Path,
    days: u16,
) -> Result<Vec<PathBuf>, Failure> {
    let mut made = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| data::unusable(directory, &error))? {
        let path = entry
            .map_err(|error| data::unusable(directory, &error))?
            .path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".hosts"));
        if let Some(name) = name {
            let hosts: Vec<String> = read_text(&path)?.lines().map(str::to_owned).collect();
            made.extend(issue(authority, directory, name, &hosts, days)?);
        }
    }
    made.sort();
    Ok(made)
}

/// Reads a file with at least one certificate of an authority.
pub(crate) fn read_authority(path: &Path) -> Result<Vec<u8>, Failure> {
    let text = read_text(path)?;
    if text.contains("-----BEGIN CERTIFICATE-----") {
        return Ok(text.into_bytes());
    }
    Err(
        Failure::usage(format!("{} contains no certificate", path.display()))
            .with_hint("use the file ca.crt of the cluster, created by `aod certs`"),
    )
}

/// The same key gives the same common name, which certificates contain as their issuer.
fn authority_params(key: &KeyPair) -> Result<CertificateParams, Failure> {
    let mut params = params(Vec::new(), AUTHORITY_DAYS)?;
    let digest = Digest::of(key.subject_public_key_info()).to_string();
    let name = format!("AOD authority {}", &digest[..16]);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn server_params(name: &str, hosts: &[String], days: u16) -> Result<CertificateParams, Failure> {
    let mut names: Vec<String> = LOOPBACK.map(str::to_owned).into();
    names.extend(
        hosts
            .iter()
            .filter(|host| !LOOPBACK.contains(&host.as_str()))
            .cloned(),
    );
    let mut params = params(names, days)?;
    params
        .distinguished_name
        .push(DnType::CommonName, format!("AOD {name}"));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Servers of a NATS cluster are also clients of each other.
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    Ok(params)
}

/// Valid from yesterday on, since clocks differ.
fn params(names: Vec<String>, days: u16) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::new(names).map_err(|error| impossible(&error))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let day = |date: jiff::civil::Date| {
        let number = |part: i8| u8::try_from(part).expect("months and days count from 1");
        rcgen::date_time_ymd(date.year().into(), number(date.month()), number(date.day()))
    };
    params.not_before = day(today.saturating_sub(1.day()));
    params.not_after = day(today.saturating_add(i32::from(days).days()));
    Ok(params)
}

fn is_host(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
        || (text.len() <= 253
            && text.split('.').all(|label| {
                let is_plain =
                    |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
                (1..=63).contains(&label.len()) && label.bytes().all(is_plain)
            }))
}

fn read_text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| data::unusable(path, &error))
}

fn read_key(path: &Path) -> Result<KeyPair, Failure> {
    KeyPair::from_pem(&read_text(path)?).map_err(|error| {
        Failure::usage(format!("{} contains no key that can sign", path.display())).because(&error)
    })
}

fn impossible(error: &rcgen::Error) -> Failure {
    Failure::environment("cannot create the certificate").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::data::tests::names;

    #[test]
    fn renewed_certificate_keeps_names_key_and_authority() {
        let directory = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let (authority, made) = Authority::ensure(directory.path()).unwrap();
        assert_eq!(names(&made), ["ca.crt", "ca.key"]);
        let hosts = ["192.0.2.1".to_owned(), "control.example.net".to_owned()];
        let made = issue(&authority, directory.path(), "server", &hosts, 30).unwrap();
        assert_eq!(names(&made), ["server.key", "server.crt", "server.hosts"]);
        let before = ["ca.crt", "ca.key", "server.key", "server.hosts"].map(read);
        let certificate = read("server.crt");

        let (authority, made) = Authority::ensure(directory.path()).unwrap();
        assert!(made.is_empty());
        let made = renew_all(&authority, directory.path(), 30).unwrap();
        assert_eq!(names(&made), ["server.crt", "server.hosts"]);
        assert_eq!(
            ["ca.crt", "ca.key", "server.key", "server.hosts"].map(read),
            before
        );
        assert_ne!(read("server.crt"), certificate);
    }

    #[test]
    fn authority_without_its_key_is_rejected_with_a_hint() {
        let (kept, used) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (authority, _) = Authority::ensure(kept.path()).unwrap();
        assert_eq!(
            names(authority.copy_to(used.path()).unwrap().as_slice()),
            ["ca.crt"]
        );
        assert_eq!(authority.copy_to(used.path()).unwrap(), None);
        assert!(!used.path().join("ca.key").exists());
        let refused = Authority::ensure(used.path()).unwrap_err().render();
        assert!(
            refused.contains("only one of") && refused.contains("--authority"),
            "{refused}"
        );
    }

    #[test]
    fn issue_rejects_all_invalid_hosts_and_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (authority, _) = Authority::ensure(directory.path()).unwrap();
        let hosts = [
            "fine".to_owned(),
            "a b".to_owned(),
            String::new(),
            "*.net".to_owned(),
        ];
        let refused = issue(&authority, directory.path(), "server", &hosts, 30).unwrap_err();
        assert_eq!(refused.render().matches("invalid host").count(), 3);
        assert!(!directory.path().join("server.key").exists());
        for name in ["", "ca", "../x", "a.b"] {
            assert!(
                issue(&authority, directory.path(), name, &hosts[..1], 30).is_err(),
                "{name}"
            );
        }
    }
}
