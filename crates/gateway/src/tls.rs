//! TLS of the listener. The gateway reads the certificate again when its file changes, so that renewal needs no
//! restart.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Maximum time for a TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// First byte of TLS: a handshake record. Source: RFC 8446, 5.1.
const HANDSHAKE_RECORD: u8 = 22;

/// Bytes of plain HTTP that are read and discarded at a time.
const PLAIN_BYTES: usize = 4 * 1024;

/// The answer to plain HTTP.
const PLAIN_ANSWER: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
    this gateway requires TLS: use https://\n";

/// Errors of a certificate.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: pem::Error },
    #[error("{path} contains no certificate; expected PEM")]
    Empty { path: PathBuf },
    /// The key belongs to another certificate, or its type is not supported.
    #[error(
        "the key {key} does not match the certificate {certificate}, or its type is not supported"
    )]
    Unusable {
        certificate: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
}

/// A certificate with its key, from files.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

#[derive(Clone)]
struct Current {
    changed_at: Option<SystemTime>,
    acceptor: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tls")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads certificate and key.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let current = Current {
            changed_at: changed_at(certificate),
            acceptor: read(certificate, key)?,
        };
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: Mutex::new(current),
        })
    }

    /// Performs the handshake; none if it fails, or if the client does not use TLS.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        match timeout(HANDSHAKE_PATIENCE, self.handshake(stream)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake timed out"),
        }
        None
    }

    async fn handshake(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first[0].is_ascii_alphabetic() && first[0] != HANDSHAKE_RECORD {
            let mut request = [0; PLAIN_BYTES];
            let _ = stream.read(&mut request).await?;
            stream.write_all(PLAIN_ANSWER).await?;
            stream.shutdown().await?;
            // Closing a connection with unread bytes would discard the answer.
            while stream.read(&mut request).await? > 0 {}
            return Err(io::Error::other("the client sent plain HTTP"));
        }
        self.acceptor().accept(stream).await
    }

    /// The acceptor for the current certificate; if that is unreadable, the previous one remains in use.
    fn acceptor(&self) -> TlsAcceptor {
        let changed_at = changed_at(&self.certificate);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if changed_at != current.changed_at {
            match read(&self.certificate, &self.key) {
                Ok(acceptor) => {
                    tracing::info!(certificate = %self.certificate.display(), "loaded a changed certificate");
                    *current = Current {
                        changed_at,
                        acceptor,
                    };
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the changed certificate is invalid; the previous one remains in use"
                    );
                }
            }
        }
        current.acceptor.clone()
    }
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .ok()
}

fn read(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Read { path, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(failed(certificate))?;
    let chain: Vec<_> = chain
        .collect::<Result<_, _>>()
        .map_err(failed(certificate))?;
    if chain.is_empty() {
        return Err(TlsError::Empty {
            path: certificate.to_owned(),
        });
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
    let unusable = |source| TlsError::Unusable {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        source,
    };
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth();
    let mut config = config.with_single_cert(chain, private).map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
