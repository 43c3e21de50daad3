//! HTTP connections to the gateways.

use std::time::Duration;

use aod_api::CONNECTION_REUSE_SECONDS_MAX;
use aod_ports::BoxError;
use aod_ports::gateways::{AnswerBody, GatewayTransport};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Request, Response};
use reqwest::{Certificate, Client};

/// How long a gateway may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// HTTP/1.1 on reused connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpGateways(Client);

impl HttpGateways {
    /// # Errors
    /// A bug, or a broken TLS setup.
    pub fn new() -> Result<Self, BoxError> {
        Self::trusting(None)
    }

    /// Trusts `authority`, in PEM, to sign the gateways' certificates, instead of the system's authorities.
    pub fn trusting(authority: Option<&[u8]>) -> Result<Self, BoxError> {
        // Another crate of the same program may use TLS without choosing a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder();
        if let Some(pem) = authority {
            builder = builder.tls_certs_only(Certificate::from_pem_bundle(pem)?);
        }
        let client = builder
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(Duration::from_secs(CONNECTION_REUSE_SECONDS_MAX))
            .no_proxy()
            .build()?;
        Ok(Self(client))
    }
}

#[async_trait]
impl GatewayTransport for HttpGateways {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<AnswerBody>, BoxError> {
        let answer = self.0.execute(request.try_into()?).await?;
        let mut response = Response::builder().status(answer.status());
        if let Some(headers) = response.headers_mut() {
            headers.clone_from(answer.headers());
        }
        let body = answer.bytes_stream().map_err(BoxError::from);
        Ok(response.body(body.boxed())?)
    }
}
