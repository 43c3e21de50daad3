//! The consumers of the queue: `<pool>-<class>`, created once, shared by all nodes.

use std::time::Duration;

use aod_domain::subject::{Class, Pool};
use aod_ports::BoxError;
use aod_ports::work_queue::Waiting;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{self, AckPolicy, DeliverPolicy, ReplayPolicy, pull};
use async_nats::jetstream::stream::{ConsumerCreateStrictErrorKind, ConsumerErrorKind};
use futures::TryStreamExt as _;

use crate::link::{Failure, Link};
use crate::streams::WORK;

/// Maximum number of delivered and unacknowledged launches of all nodes. The server's default of 1,000
/// would stop the queue at 1,000 running capsules.
const RUNNING_MAX: i64 = 100_000;

/// Maximum number of nodes that wait for a launch. The server's default is 512.
const PULLS_MAX: i64 = 4_096;

/// Without a limit: the domain rules count deliveries and end a run with a reason.
const DELIVERIES_UNLIMITED: i64 = -1;

pub(super) fn name(pool: &Pool, class: Class) -> String {
    format!("{pool}-{class}")
}

/// Parses a name of [`name`].
fn parse_name(name: &str) -> Option<(Pool, Class)> {
    let (pool, class) = name.rsplit_once('-')?;
    let class = [Class::Child, Class::Root]
        .into_iter()
        .find(|known| known.to_string() == class)?;
    Some((pool.parse().ok()?, class))
}

fn config(pool: &Pool, class: Class, lease: Duration) -> pull::Config {
    pull::Config {
        durable_name: Some(name(pool, class)),
        filter_subject: format!("ev.*.run.*.*.s.launched.{pool}.{class}"),
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

/// Creates the consumer. Never changes an existing one, because nodes rely on its lease time: other
/// settings are an error.
pub(super) async fn ensure(
    link: &Link,
    pool: &Pool,
    class: Class,
    lease: Duration,
) -> Result<(), BoxError> {
    let wanted = config(pool, class, lease);
    let found = link
        .patiently(|| make_or_find(link, wanted.clone()))
        .await?;
    compare(pool, class, &wanted, &found)
}

/// Checks that the consumer exists with our settings; waits a while for a gateway to create it.
pub(super) async fn bind(
    link: &Link,
    pool: &Pool,
    class: Class,
    lease: Duration,
) -> Result<(), BoxError> {
    let name = name(pool, class);
    let found = link.patiently(|| find(link, &name)).await?;
    compare(pool, class, &config(pool, class, lease), &found)
}

fn compare(
    pool: &Pool,
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
    let name = name(pool, class);
    Err(format!(
        "consumer {name} of {WORK} has a lease of {} s and the filter {}, expected {} s and {}: \
         configure the same lease for all nodes, or stop all nodes and remove the consumer",
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

/// Removes the consumer; a missing one is fine.
pub(super) async fn remove(link: &Link, pool: &Pool, class: Class) -> Result<(), BoxError> {
    let name = name(pool, class);
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

/// The waiting launches of each consumer.
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
    let (pool, class) = parse_name(&info.name)?;
    let delivered = u64::try_from(info.num_ack_pending).unwrap_or(u64::MAX);
    Some(Waiting {
        pool,
        class,
        pending: info.num_pending,
        delivered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_consumer_contains_its_pool() {
        for pool in ["any", "gpu-large", "node-7"] {
            let pool: Pool = pool.parse().unwrap();
            for class in [Class::Child, Class::Root] {
                assert_eq!(parse_name(&name(&pool, class)), Some((pool.clone(), class)));
            }
        }
        assert_eq!(parse_name("someone-elses"), None);
    }
}
