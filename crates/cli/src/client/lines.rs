//! Answers that consist of JSON lines.

use futures::StreamExt as _;
use futures::stream::BoxStream;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Client, ClientError};
use crate::exit::Exit;
use crate::failure::Failure;

/// Maximum line, in bytes: a problem with all its details is far shorter.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The lines of one answer.
pub(crate) struct Lines {
    client: Client,
    pieces: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    read: Vec<u8>,
}

impl Client {
    /// Posts JSON, once; returns the lines as they arrive.
    pub(crate) async fn post_lines(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Lines, ClientError> {
        let response = self
            .send(self.request(Method::POST, path).json(body))
            .await?;
        Ok(Lines {
            client: self.clone(),
            pieces: response.bytes_stream().boxed(),
            read: Vec::new(),
        })
    }
}

impl Lines {
    /// The next line; `None` at the end of the answer.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(|error| {
                    Failure::new(Exit::Internal, "a line of the gateway cannot be read")
                        .because(&error)
                        .with_hint("use the same version of gateway and `aod`")
                });
            }
            match self.pieces.next().await {
                None => return Ok(None),
                Some(Ok(piece)) => self.read.extend_from_slice(&piece),
                Some(Err(error)) => return Err(self.client.broken(&error).into()),
            }
            if self.read.len() > LINE_BYTES_MAX {
                let text = "the gateway sent a line of more than 1 MiB";
                return Err(Failure::new(Exit::Internal, text));
            }
        }
    }
}
