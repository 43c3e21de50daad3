//! A node's requests to a gateway: HTTP with whole request bodies and streamed answers.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use http::{Request, Response};

use crate::BoxError;

/// The body of an answer, piece by piece; an error ends it early.
pub type AnswerBody = BoxStream<'static, Result<Bytes, BoxError>>;

/// The connection to the gateways.
#[async_trait]
pub trait GatewayTransport: Send + Sync + std::fmt::Debug {
    /// Sends `request`, whose URI is absolute; returns when the head of the answer has arrived.
    ///
    /// # Errors
    /// Any failure to get an answer. The gateway may have acted nevertheless.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<AnswerBody>, BoxError>;
}
