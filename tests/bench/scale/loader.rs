//! Stores generated events by the thousand, each thousand in one atomic batch of the broker. Implements the protocol
//! itself, because the product appends one event at a time.

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::generator::{Generator, Made};
use crate::nats::Publisher;

/// Messages of one batch. Source: ADR-50, the maximum of a server.
const BATCH_MAX: usize = 1_000;

/// Batches generated ahead.
const AHEAD: usize = 4;

/// The log, and the queue that a gateway derives from it.
const EVENTS: &str = "EVENTS";
const WORK: &str = "WORK";

/// Allows batches in the log, and deletes the consumers that would process each of them: the queue of launches, whose
/// runs have all ended, and the durable consumers of ends. The next gateway recreates them.
pub(crate) async fn prepare(publisher: &mut Publisher) -> anyhow::Result<()> {
    let information = publisher
        .ask(&format!("$JS.API.STREAM.INFO.{EVENTS}"), &Value::Null)
        .await?;
    let mut config = information["config"].clone();
    config["allow_atomic"] = json!(true);
    publisher
        .ask(&format!("$JS.API.STREAM.UPDATE.{EVENTS}"), &config)
        .await?;
    let streams = publisher.ask("$JS.API.STREAM.NAMES", &Value::Null).await?;
    if streams["streams"]
        .as_array()
        .is_some_and(|names| names.contains(&json!(WORK)))
    {
        publisher
            .ask(&format!("$JS.API.STREAM.DELETE.{WORK}"), &Value::Null)
            .await?;
    }
    let consumers = publisher
        .ask(&format!("$JS.API.CONSUMER.NAMES.{EVENTS}"), &Value::Null)
        .await?;
    for name in consumers["consumers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        publisher
            .ask(
                &format!("$JS.API.CONSUMER.DELETE.{EVENTS}.{name}"),
                &Value::Null,
            )
            .await?;
    }
    Ok(())
}

/// The last sequence of the log.
pub(crate) async fn last_sequence(publisher: &mut Publisher) -> anyhow::Result<u64> {
    let information = publisher
        .ask(&format!("$JS.API.STREAM.INFO.{EVENTS}"), &Value::Null)
        .await?;
    information["state"]["last_seq"]
        .as_u64()
        .context("the log has a last event")
}

/// Size of the log on disk, in bytes.
pub(crate) async fn bytes(publisher: &mut Publisher) -> anyhow::Result<u64> {
    let information = publisher
        .ask(&format!("$JS.API.STREAM.INFO.{EVENTS}"), &Value::Null)
        .await?;
    information["state"]["bytes"]
        .as_u64()
        .context("the log has a size")
}

/// Generates and stores trees until there are `runs` runs; returns the generator.
pub(crate) async fn load(
    publisher: &mut Publisher,
    mut generator: Generator,
    runs: u64,
) -> anyhow::Result<Generator> {
    let (sender, mut batches) = mpsc::channel::<Vec<Made>>(AHEAD);
    let making = tokio::task::spawn_blocking(move || {
        let mut batch = Vec::new();
        while generator.runs < runs {
            for made in generator.tree()? {
                batch.push(made);
                if batch.len() == BATCH_MAX {
                    sender.blocking_send(std::mem::take(&mut batch))?;
                }
            }
        }
        if !batch.is_empty() {
            sender.blocking_send(batch)?;
        }
        anyhow::Ok(generator)
    });
    let mut number = 0;
    while let Some(batch) = batches.recv().await {
        number += 1;
        let messages = batch.iter().map(|made| {
            (
                made.subject.as_str(),
                made.id.as_str(),
                made.bytes.as_slice(),
            )
        });
        publisher
            .publish_batch(&format!("batch-{runs}-{number}"), messages)
            .await?;
    }
    let generator = making.await??;
    let last = last_sequence(publisher).await?;
    anyhow::ensure!(
        last == generator.sequence,
        "the log is at {last} instead of {}",
        generator.sequence
    );
    Ok(generator)
}
