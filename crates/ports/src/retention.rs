//! What operators laid down about keeping, and what was collected, as the log has it.

use std::collections::{BTreeMap, BTreeSet};

use aod_domain::digest::Digest;
use aod_domain::event::{CloudEvent, MalformedEvent, Recorded};
use aod_domain::retention::{ArtifactEvent, Event, Retention};
use aod_domain::subject;
use jiff::Timestamp;
use serde::Serialize;
use thiserror::Error;

use crate::event_log::{Append, AppendError, EventLog, Guard, ReadError};
use crate::runs::Runs;

/// Events that are read at a time.
const PAGE_SIZE: usize = 500;

/// Why it is not known.
#[derive(Debug, Error)]
pub enum RetentionError {
    /// The broker does not answer: try again later.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What is stored cannot be read: a person must look.
    #[error("the event {sequence} about keeping is damaged")]
    Damaged {
        sequence: u64,
        source: MalformedEvent,
    },
}

/// What operators have laid down so far.
pub async fn load(log: &dyn EventLog) -> Result<Retention, RetentionError> {
    let mut retention = Retention::default();
    loop {
        let page = log
            .read(subject::RETENTION, retention.last, PAGE_SIZE)
            .await?;
        for stored in &page {
            let sequence = stored.sequence;
            let recorded = Recorded::<Event>::decode(sequence, &stored.bytes)
                .map_err(|source| RetentionError::Damaged { sequence, source })?;
            retention.apply(recorded);
        }
        if page.len() < PAGE_SIZE {
            return Ok(retention);
        }
    }
}

/// Stores what an operator lays down; its place in the log.
pub async fn lay_down(runs: &Runs, event: Event) -> Result<u64, AppendError> {
    let (subject, about) = (event.subject(), event.about());
    append(runs, subject, about, event).await
}

/// Says that artifacts are about to be removed.
pub async fn tell(runs: &Runs, event: ArtifactEvent) -> Result<u64, AppendError> {
    let subject = event.subject();
    append(runs, subject, "artifacts".to_owned(), event).await
}

async fn append<E: Serialize>(
    runs: &Runs,
    subject: subject::Subject,
    about: String,
    event: E,
) -> Result<u64, AppendError> {
    let event = CloudEvent::new(runs.header(), about, None, event);
    let bytes = event.encode().map_err(|source| AppendError::Unconfirmed {
        subject: subject.to_string(),
        source: Box::new(source),
    })?;
    let append = Append {
        subject,
        guard: Guard::None,
        id: event.id.to_string(),
        bytes: bytes.into(),
    };
    runs.log().append(append).await
}

/// When artifacts were last collected, of those that ever were. That one was put again since, its store says.
pub async fn collected(
    log: &dyn EventLog,
    artifacts: &BTreeSet<Digest>,
) -> Result<BTreeMap<Digest, Timestamp>, RetentionError> {
    let filters: BTreeSet<String> = artifacts
        .iter()
        .map(|digest| subject::artifacts_like(*digest))
        .collect();
    let mut found = BTreeMap::new();
    for filter in filters {
        let mut after = 0;
        loop {
            let page = log.read(&filter, after, PAGE_SIZE).await?;
            for stored in &page {
                let sequence = stored.sequence;
                after = sequence;
                let recorded = Recorded::<ArtifactEvent>::decode(sequence, &stored.bytes)
                    .map_err(|source| RetentionError::Damaged { sequence, source })?;
                let ArtifactEvent::Collected {
                    artifacts: gone, ..
                } = recorded.event;
                let asked = gone.into_iter().filter(|digest| artifacts.contains(digest));
                found.extend(asked.map(|digest| (digest, recorded.time)));
            }
            if page.len() < PAGE_SIZE {
                break;
            }
        }
    }
    Ok(found)
}
