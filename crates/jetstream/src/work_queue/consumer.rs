//! The consumers of the queue: `<label>-<class>`, made once, the same for all nodes.

use std::time::Duration;

use aod_domain::subject::{Class, Label};
use aod_ports::BoxError;
use aod_ports::work_queue::Waiting;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{self, AckPolicy, DeliverPolicy, ReplayPolicy, pull};
use async_nats::jetstream::stream::{ConsumerCreateStrictErrorKind, ConsumerErrorKind};
use futures::TryStreamExt as _;

use crate::link::{Failure, Link};
use crate::streams::WORK;

/// Launches delivered and not acknowledged, over all nodes. The server's default of 1,000 would
/// stop the queue at 1,000 running capsules.
const RUNNING_MAX: i64 = 100_000;

/// Nodes that may wait for a launch at a time. The server's default is 512.
const PULLS_MAX: i64 = 4_096;

/// Without end: deliveries are counted by the rules, which end a run with a reason.
const DELIVERIES_UNLIMITED: i64 = -1;

pub(super) fn name(label: &Label, class: Class) -> String {
    format!("{label}-{class}")
}

/// Reads what [`name`] wrote.
fn parse_name(name: &str) -> Option<(Label, Class)> {
    let (label, class) = name.rsplit_once('-')?;
    let class = [Class::Child, Class::Root]
        .into_iter()
        .find(|known| known.to_string() == class)?;
    Some((label.parse().ok()?, class))
}

fn config(label: &Label, class: Class, lease: Duration) -> pull::Config {
    pull::Config {
        durable_name: Some(name(label, class)),
        filter_subject: format!("ev.*.run.*.*.s.launch.{label}.{class}"),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: lease,
        max_deliver: DELIVERIES_UNLIMITED,
        replay_policy: ReplayPolicy::Instant,
        max_waiting: PULLS_MAX,
        max_ack_pending: RUNNING_MAX,
        ..pull::Config::default()
    }
}

/// Makes the consumer. One that is there stays as it is, for nodes rely on its lease time: if it
/// has other settings than ours, we are refused.
pub(super) async fn ensure(
    link: &Link,
    label: &Label,
    class: Class,
    lease: Duration,
) -> Result<(), BoxError> {
    let wanted = config(label, class, lease);
    let found = link
        .patiently(|| make_or_find(link, wanted.clone()))
        .await?;
    compare(label, class, &wanted, &found)
}

/// Sees that the consumer is there with our settings; waits a while for a gateway to make it.
pub(super) async fn bind(
    link: &Link,
    label: &Label,
    class: Class,
    lease: Duration,
) -> Result<(), BoxError> {
    let name = name(label, class);
    let found = link.patiently(|| find(link, &name)).await?;
    compare(label, class, &config(label, class, lease), &found)
}

fn compare(
    label: &Label,
    class: Class,
    wanted: &pull::Config,
    found: &consumer::Config,
) -> Result<(), BoxError> {
    let is_same = found.filter_subject == wanted.filter_subject
        && found.ack_policy == wanted.ack_policy
        && found.ack_wait == wanted.ack_wait
        && found.max_deliver == wanted.max_deliver
        && found.max_waiting == wanted.max_waiting
        && found.max_ack_pending == wanted.max_ack_pending;
    if is_same {
        return Ok(());
    }
    let name = name(label, class);
    Err(format!(
        "consumer {name} of {WORK} has a lease of {} s and the filter {}, here {} s and {} are wanted: \
         give all nodes the same lease, or stop them all and remove the consumer",
        found.ack_wait.as_secs(),
        found.filter_subject,
        wanted.ack_wait.as_secs(),
        wanted.filter_subject,
    )
    .into())
}

async fn make_or_find(link: &Link, wanted: pull::Config) -> Result<consumer::Config, Failure> {
    let name = wanted.durable_name.clone().unwrap_or_default();
    match link
        .context
        .create_consumer_strict_on_stream(wanted, WORK)
        .await
    {
        Ok(made) => Ok(made.cached_info().config.clone()),
        Err(error) if error.kind() == ConsumerCreateStrictErrorKind::AlreadyExists => {
            find(link, &name).await
        }
        Err(error) => Err(match error.kind() {
            ConsumerCreateStrictErrorKind::JetStream(answer) if answer.code() < 500 => {
                Failure::last(error)
            }
            _ => Failure::transient(error),
        }),
    }
}

/// Removes the consumer; one that is gone is fine.
pub(super) async fn remove(link: &Link, label: &Label, class: Class) -> Result<(), BoxError> {
    let name = name(label, class);
    link.patiently(|| async {
        match link
            .context
            .delete_consumer_from_stream(name.clone(), WORK)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                ConsumerErrorKind::JetStream(answer)
                    if answer.error_code() == ErrorCode::CONSUMER_NOT_FOUND =>
                {
                    Ok(())
                }
                _ => Err(Failure::transient(error)),
            },
        }
    })
    .await
}

async fn find(link: &Link, name: &str) -> Result<consumer::Config, Failure> {
    let asked = async {
        let context = &link.context;
        let found = context.get_consumer_from_stream::<pull::Config, _, _>(name, WORK);
        let found = found.await.map_err(Failure::transient)?;
        Ok(found.cached_info().config.clone())
    };
    let subject = format!("$JS.API.CONSUMER.INFO.{WORK}.{name}");
    link.permitted(&subject, asked).await
}

/// What waits at each consumer.
pub(super) async fn waiting(link: &Link) -> Result<Vec<Waiting>, BoxError> {
    link.patiently(|| async {
        let stream = link
            .context
            .get_stream_no_info(WORK)
            .await
            .map_err(Failure::last)?;
        let consumers: Vec<consumer::Info> = stream
            .consumers()
            .try_collect()
            .await
            .map_err(Failure::transient)?;
        Ok(consumers.iter().filter_map(waiting_at).collect())
    })
    .await
}

fn waiting_at(info: &consumer::Info) -> Option<Waiting> {
    let (label, class) = parse_name(&info.name)?;
    let delivered = u64::try_from(info.num_ack_pending).unwrap_or(u64::MAX);
    Some(Waiting {
        label,
        class,
        pending: info.num_pending,
        delivered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_tells_its_label() {
        for label in ["any", "gpu-large", "node-7"] {
            let label: Label = label.parse().unwrap();
            for class in [Class::Child, Class::Root] {
                assert_eq!(
                    parse_name(&name(&label, class)),
                    Some((label.clone(), class))
                );
            }
        }
        assert_eq!(parse_name("someone-elses"), None);
    }
}
