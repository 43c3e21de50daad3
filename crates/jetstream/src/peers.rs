//! Peers over core NATS: questions to all nodes on one subject, requests for pieces on a subject of each node. No message
//! is stored.
//!
//! The connection is separate, so that bytes never delay events, and does not receive its own questions: the server
//! reports immediately if no other node listens.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::id::NodeId;
use aod_domain::peers::{ANSWERS_WITHIN, Answer, PIECE_BYTES_MAX};
use aod_domain::subject::{PEER_QUESTIONS, peer};
use aod_ports::BoxError;
use aod_ports::peers::{Holder, IsEnough, Peers, Piece};
use async_nats::{
    Client, HeaderMap, Message, PublishError, Request, StatusCode, Subject, Subscriber,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::link::{Failure, Link};

/// Deadline of one piece. Four pieces in flight therefore need a mebibyte per second: a slower peer is not better than
/// the store.
const PIECE_WITHIN: Duration = Duration::from_secs(2);

/// Maximum number of pieces that a node serves at a time: 4 MiB of memory, and as much waiting for its network.
const SERVED_MAX: usize = 8;

/// The header of an answer without bytes: the number of bytes that the peer has fetched so far.
const WAIT: &str = "Aod-Wait-Fetched-Bytes";

/// A question to all nodes.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    node: NodeId,
    artifact: Digest,
}

/// A request for the bytes from `start` to `end`.
#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    artifact: Digest,
    start: u64,
    end: u64,
}

/// The peers of a node, on a connection of their own.
#[derive(Debug)]
pub struct NatsPeers {
    link: Link,
    node: NodeId,
    /// Questions and requests; locked by the call that serves.
    incoming: Mutex<(Subscriber, Subscriber)>,
}

impl NatsPeers {
    pub(crate) async fn open(link: Link, node: NodeId) -> Result<Self, BoxError> {
        let client = &link.client;
        let questions = client.subscribe(PEER_QUESTIONS).await?;
        let requests = client.subscribe(peer(node)).await?;
        // Other nodes must hear this one before it asks.
        client.flush().await?;
        Ok(Self {
            node,
            incoming: Mutex::new((questions, requests)),
            link,
        })
    }
}

#[async_trait]
impl Peers for NatsPeers {
    fn me(&self) -> NodeId {
        self.node
    }

    async fn ask(
        &self,
        artifact: Digest,
        is_enough: IsEnough<'_>,
    ) -> Result<Vec<Answer>, BoxError> {
        let client = &self.link.client;
        let deadline = Instant::now() + ANSWERS_WITHIN;
        let inbox = client.new_inbox();
        let mut replies = client.subscribe(inbox.clone()).await?;
        let node = self.node;
        let question = json!(Question { node, artifact }).to_string();
        let asked = client.publish_with_reply(PEER_QUESTIONS, inbox, question.into());
        asked.await?;
        let collected = async {
            let mut answers = Vec::new();
            while let Ok(Some(message)) = timeout_at(deadline, replies.next()).await {
                if message.status == Some(StatusCode::NO_RESPONDERS) {
                    break;
                }
                answers.extend(serde_json::from_slice::<Answer>(&message.payload));
                if is_enough(&answers) {
                    break;
                }
            }
            Ok::<_, Failure>(answers)
        };
        let answers = self.link.permitted(PEER_QUESTIONS, collected).await;
        answers.map_err(|failure| failure.source)
    }

    async fn piece(
        &self,
        to: NodeId,
        artifact: Digest,
        range: Range<u64>,
    ) -> Result<Piece, BoxError> {
        let wanted = json!(Wanted {
            artifact,
            start: range.start,
            end: range.end,
        });
        let request = Request::new()
            .payload(wanted.to_string().into())
            .timeout(Some(PIECE_WITHIN));
        let answer = self.link.client.send_request(peer(to), request).await?;
        let waits = answer
            .headers
            .as_ref()
            .and_then(|headers| headers.get(WAIT));
        if let Some(fetched_bytes) = waits {
            let fetched_bytes = fetched_bytes.as_str().parse()?;
            return Ok(Piece::Wait { fetched_bytes });
        }
        Ok(match answer.payload {
            bytes if bytes.is_empty() => Piece::Missing,
            bytes => Piece::Bytes(bytes),
        })
    }

    async fn serve(&self, holder: Arc<dyn Holder>) {
        let (questions, requests) = &mut *self.incoming.lock().await;
        let server = Arc::new(Server {
            client: self.link.client.clone(),
            node: self.node,
            holder,
            places: Semaphore::new(SERVED_MAX),
        });
        let answers = questions.for_each(|question| Arc::clone(&server).answer(question));
        // A request without a place is answered immediately, so few are in progress.
        let pieces =
            requests.for_each_concurrent(None, |request| Arc::clone(&server).send(request));
        futures::join!(answers, pieces);
    }
}

/// Answers other nodes.
struct Server {
    client: Client,
    node: NodeId,
    holder: Arc<dyn Holder>,
    places: Semaphore,
}

impl Server {
    async fn answer(self: Arc<Self>, question: Message) {
        let Ok(Question { node, artifact }) = serde_json::from_slice(&question.payload) else {
            return;
        };
        let standing = self.holder.standing(artifact, node);
        if let (Some(standing), Some(reply)) = (standing, question.reply) {
            let node = self.node;
            let answer = json!(Answer { node, standing }).to_string();
            // Without a connection, nobody waits for the answer.
            let _ = self.client.publish(reply, answer.into()).await;
        }
    }

    /// Keeps its place until the bytes are on the network, so that few of them wait there.
    async fn send(self: Arc<Self>, request: Message) {
        let wanted = serde_json::from_slice::<Wanted>(&request.payload);
        let (Ok(wanted), Some(reply)) = (wanted, request.reply) else {
            return;
        };
        let place = self.places.try_acquire();
        let piece = match &place {
            Err(_) => Piece::Wait { fetched_bytes: 0 },
            Ok(_) => self.piece(wanted).await,
        };
        // The other node notices a lost connection itself.
        if publish_piece(&self.client, reply, piece).await.is_ok() && place.is_ok() {
            let _ = self.client.flush().await;
        }
    }

    async fn piece(&self, wanted: Wanted) -> Piece {
        let Wanted {
            artifact,
            start,
            end,
        } = wanted;
        if end.saturating_sub(start) > PIECE_BYTES_MAX {
            return Piece::Missing;
        }
        self.holder.piece(artifact, start..end).await
    }
}

async fn publish_piece(client: &Client, to: Subject, piece: Piece) -> Result<(), PublishError> {
    match piece {
        Piece::Bytes(bytes) => client.publish(to, bytes).await,
        Piece::Missing => client.publish(to, Bytes::new()).await,
        Piece::Wait { fetched_bytes } => {
            let mut headers = HeaderMap::new();
            headers.insert(WAIT, fetched_bytes.to_string());
            client.publish_with_headers(to, headers, Bytes::new()).await
        }
    }
}
