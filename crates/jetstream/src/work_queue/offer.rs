//! Offers of launches from one node to another: a request on the other node's subject with the sequence of the
//! launch in the log. The other node reads the launch from the log, so a node cannot forge one.
//!
//! The other node answers with a request of its own, and has the launch only with the answer to that request. An offer
//! or an answer may be late on its way: the first node hands over nothing after its patience, and the other node counts
//! the lease from its own request. No message is stored: the queue delivers the launch of a lost hand-over again after
//! the lease time.

use std::time::Duration;

use aod_domain::id::NodeId;
use aod_domain::subject::Class;
use aod_ports::BoxError;
use aod_ports::work_queue::{Delivery, Offer};
use async_nats::client::RequestErrorKind;
use async_nats::jetstream::stream::Stream;
use async_nats::{Client, HeaderMap, Message, Request, Subject};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::sync::oneshot;

use super::pull;
use crate::event_log::stored;
use crate::link::Link;
use crate::streams::EVENTS;

/// Headers of an offer: sequence of the launch in the log, its acknowledgement subject, its class, and how long the
/// first node waits for an answer.
const LAUNCH: &str = "Aod-Launch";
const ACKNOWLEDGE: &str = "Aod-Acknowledge";
const CLASS: &str = "Aod-Class";
const PATIENCE: &str = "Aod-Patience-Milliseconds";

/// The answers to an offer: the request that takes the launch, and the refusal.
const TAKE: &[u8] = b"+OK";
const REFUSE: &[u8] = b"-ERR";

/// The offers to all nodes.
pub(crate) const OFFERS: &str = "offer.*";

fn subject(node: NodeId) -> String {
    format!("offer.{}", node.token())
}

/// Offers a launch to `to` and returns whether it was handed over. An offline node takes nothing.
pub(super) async fn offer(
    link: &Link,
    to: NodeId,
    delivery: &Delivery,
    held: &(dyn Fn() -> Duration + Send + Sync),
    patience: Duration,
) -> Result<bool, BoxError> {
    let mut headers = HeaderMap::new();
    headers.insert(LAUNCH, delivery.launch.sequence.to_string());
    headers.insert(ACKNOWLEDGE, delivery.ack_subject.as_str());
    headers.insert(CLASS, delivery.class.to_string());
    headers.insert(PATIENCE, patience.as_millis().to_string());
    let request = Request::new().headers(headers).timeout(Some(patience));
    let answer = match link.client.send_request(subject(to), request).await {
        Ok(answer) => answer,
        Err(error) if error.kind() == RequestErrorKind::NoResponders => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let Some(taker) = answer.reply.filter(|_| &answer.payload[..] == TAKE) else {
        return Ok(false);
    };
    let held = held().as_millis().to_string();
    if let Err(error) = link.client.publish(taker, held.into()).await {
        tracing::warn!(%error, "a launch is handed over, but the other node cannot be told");
    }
    Ok(true)
}

/// The offers to `node`.
pub(super) async fn offers(
    link: &Link,
    node: NodeId,
) -> Result<BoxStream<'static, Offer>, BoxError> {
    let client = link.client.clone();
    let log = link.context.get_stream_no_info(EVENTS).await?;
    let messages = client.subscribe(subject(node)).await?;
    // The subscription must exist before the next offer.
    client.flush().await?;
    let offers = messages.filter_map(move |message| {
        let (client, log) = (client.clone(), log.clone());
        async move {
            let offer = read(&client, &log, &message).await;
            if offer.is_none() {
                tracing::warn!(subject = %message.subject, "an offer of a launch is invalid");
            }
            offer
        }
    });
    Ok(offers.boxed())
}

async fn read(client: &Client, log: &Stream<()>, message: &Message) -> Option<Offer> {
    let headers = message.headers.as_ref()?;
    let header = |name| Some(headers.get(name)?.as_str());
    let class = [Class::Child, Class::Root]
        .into_iter()
        .find(|class| Some(class.to_string().as_str()) == header(CLASS))?;
    let patience = Duration::from_millis(header(PATIENCE)?.parse().ok()?);
    let (launch, acknowledge) = (header(LAUNCH)?, header(ACKNOWLEDGE)?);
    let launch = log.get_raw_message(launch.parse().ok()?).await.ok()?;
    let delivery = pull::of_launch(stored(launch), acknowledge, class)?;
    let reply = message.reply.clone()?;
    let (take, taken) = oneshot::channel();
    let client = client.clone();
    tokio::spawn(async move {
        if let Err(error) = answer(&client, reply, taken, patience).await {
            tracing::debug!(%error, "an offer of a launch was not answered, or not handed over");
        }
    });
    Some(Offer { delivery, take })
}

/// Refuses, or takes the launch and reports its hand-over. The other node waits for the taking as long as this node
/// waits for the hand-over: `patience`.
async fn answer(
    client: &Client,
    reply: Subject,
    taken: oneshot::Receiver<oneshot::Sender<Duration>>,
    patience: Duration,
) -> Result<(), BoxError> {
    let Ok(handed_over) = taken.await else {
        return Ok(client.publish(reply, REFUSE.into()).await?);
    };
    let request = Request::new().payload(TAKE.into()).timeout(Some(patience));
    let held = client.send_request(reply, request).await?.payload;
    let held = std::str::from_utf8(&held)?.parse()?;
    let _ = handed_over.send(Duration::from_millis(held));
    Ok(())
}
