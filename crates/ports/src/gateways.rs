//! How a node's requests reach a gateway: HTTP, whole bodies there, streams back.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use http::{Request, Response};

use crate::BoxError;

/// The body of an answer, piece by piece; it breaks off with an error.
pub type AnswerBody = BoxStream<'static, Result<Bytes, BoxError>>;

/// The way to the gateways.
#[async_trait]
pub trait GatewayTransport: Send + Sync + std::fmt::Debug {
    /// Sends `request`, whose URI is absolute; answers when the head of the answer is there.
    ///
    /// # Errors
    /// Whatever kept it from being answered. The gateway may have acted all the same.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<AnswerBody>, BoxError>;
}
