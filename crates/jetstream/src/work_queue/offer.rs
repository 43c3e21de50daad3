//! Offers of launches from one node to another: a request on the other node's subject with the sequence of the
//! launch in the log. The other node reads the launch from the log, so a node cannot forge one. Offers are not
//! stored: the queue delivers the launch of a lost offer again after the lease time.

use std::time::Duration;

use aod_domain::id::NodeId;
use aod_domain::subject::Class;
use aod_ports::BoxError;
use aod_ports::work_queue::{Delivery, Offer};
use async_nats::client::RequestErrorKind;
use async_nats::jetstream::stream::Stream;
use async_nats::{Client, HeaderMap, Message, Request};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::sync::oneshot;

use super::pull;
use crate::event_log::stored;
use crate::link::Link;
use crate::streams::EVENTS;

/// Headers of an offer: sequence of the launch in the log, its acknowledgement subject, its class, and the time since
/// its delivery.
const LAUNCH: &str = "Aod-Launch";
const ACKNOWLEDGE: &str = "Aod-Acknowledge";
const CLASS: &str = "Aod-Class";
const HELD: &str = "Aod-Held-Milliseconds";

/// Answers to an offer.
const TAKEN: &[u8] = b"+OK";
const REFUSED: &[u8] = b"-ERR";

/// The offers to all nodes.
pub(crate) const OFFERS: &str = "offer.*";

fn subject(node: NodeId) -> String {
    format!("offer.{}", node.token())
}

/// Offers a launch to `to` and returns whether that node has taken it. An offline node takes nothing; a node that does
/// not answer may have taken it.
pub(super) async fn offer(
    link: &Link,
    to: NodeId,
    delivery: &Delivery,
    held: Duration,
    patience: Duration,
) -> Result<bool, BoxError> {
    let mut headers = HeaderMap::new();
    headers.insert(LAUNCH, delivery.launch.sequence.to_string());
    headers.insert(ACKNOWLEDGE, delivery.ack_subject.as_str());
    headers.insert(CLASS, delivery.class.to_string());
    headers.insert(HELD, held.as_millis().to_string());
    let request = Request::new().headers(headers).timeout(Some(patience));
    match link.client.send_request(subject(to), request).await {
        Ok(answer) => Ok(&answer.payload[..] == TAKEN),
        Err(error) if error.kind() == RequestErrorKind::NoResponders => Ok(false),
        Err(error) => Err(error.into()),
    }
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
    let held = Duration::from_millis(header(HELD)?.parse().ok()?);
    let (launch, acknowledge) = (header(LAUNCH)?, header(ACKNOWLEDGE)?);
    let launch = log.get_raw_message(launch.parse().ok()?).await.ok()?;
    let delivery = pull::of_launch(stored(launch), acknowledge, class)?;
    let reply = message.reply.clone()?;
    let (answer, answered) = oneshot::channel();
    let client = client.clone();
    tokio::spawn(async move {
        let is_taken = answered.await.unwrap_or(false);
        let text = if is_taken { TAKEN } else { REFUSED };
        if let Err(error) = client.publish(reply, text.into()).await {
            tracing::debug!(%error, "the answer to an offer cannot be sent");
        }
    });
    Some(Offer {
        delivery,
        held,
        answer,
    })
}
