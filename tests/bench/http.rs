//! Minimal HTTP: one connection, one request at a time. Used for the product and for its floor, so that neither has an
//! advantage.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

/// An answer: JSON, or null for other content.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
    text: String,
}

impl Answer {
    /// The body of a success; any other status is an error that contains the body.
    pub(crate) fn success(self) -> anyhow::Result<Value> {
        anyhow::ensure!(
            self.status.is_success(),
            "status {}: {}",
            self.status,
            self.text
        );
        Ok(self.body)
    }
}

impl Connection {
    pub(crate) async fn tcp(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| address.to_string())?;
        stream.set_nodelay(true)?;
        Self::over(stream).await
    }

    pub(crate) async fn unix(path: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(path)
            .await
            .with_context(|| path.display().to_string())?;
        Self::over(stream).await
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> anyhow::Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // The sender of a request gets the error.
            let _ = connection.await;
        });
        Ok(Self { sender, driver })
    }

    /// Whether the server has closed the connection, for example after inactivity.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let bytes = body
            .map(|body| Bytes::from(body.to_string()))
            .unwrap_or_default();
        self.sender.ready().await?;
        let response = self
            .sender
            .send_request(request.body(Full::new(bytes))?)
            .await;
        let response = response.with_context(|| format!("{method} {path}"))?;
        let status = response.status();
        let bytes = response
            .into_body()
            .collect()
            .await
            .with_context(|| format!("{method} {path}"))?
            .to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(Answer { status, body, text })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
