//! Retention policies, holds and deleted artifacts, as stored in the log.

use std::collections::{BTreeMap, BTreeSet};

use aod_domain::digest::Digest;
use aod_domain::event::CloudEvent;
use aod_domain::retention::{ArtifactEvent, Event, Rejection, Retention, check};
use aod_domain::subject;
use aod_ports::event_log::{Append, AppendError, EventLog, Guard};
use jiff::Timestamp;

use crate::pages::Pages;
use crate::writer::{ChangeError, LoadError, Writer, catch_up};

/// The current policies and holds.
///
/// # Errors
/// [`LoadError`].
pub async fn load(log: &dyn EventLog) -> Result<Retention, LoadError> {
    let mut retention = Retention::default();
    catch_up(log, &mut retention).await?;
    Ok(retention)
}

/// Stores a change of the policies and holds; returns them afterwards, and the sequence of the change.
///
/// # Errors
/// [`ChangeError`].
pub async fn change(
    writer: &Writer,
    event: &Event,
) -> Result<(Retention, u64), ChangeError<Rejection>> {
    let mut retention = load(writer.log().as_ref()).await?;
    let decide = |retention: &Retention, _| check(retention, event).map(|()| Some(event.clone()));
    let sequence = writer.change(&mut retention, decide).await?;
    Ok((retention, sequence.expect("a change is an event")))
}

/// Records that artifacts are about to be removed.
///
/// # Errors
/// [`AppendError`].
pub async fn record_deletion(writer: &Writer, event: ArtifactEvent) -> Result<u64, AppendError> {
    let subject = event.subject();
    let event = CloudEvent::new(writer.header(), "artifacts".to_owned(), None, event);
    let append = Append::of(subject, Guard::None, &event);
    let append = append.expect("a bounded number of digests fits an event");
    writer.log().append(append).await
}

/// When artifacts were last deleted, for those that ever were. The store knows whether one was put again since.
pub async fn deleted(
    log: &dyn EventLog,
    artifacts: &BTreeSet<Digest>,
) -> Result<BTreeMap<Digest, Timestamp>, LoadError> {
    let name = || "the deletions of artifacts".to_owned();
    let filters: BTreeSet<String> = artifacts
        .iter()
        .map(|digest| subject::artifacts_like(*digest))
        .collect();
    let mut found = BTreeMap::new();
    for filter in filters {
        let mut pages = Pages::new(log, filter, 0);
        loop {
            let page = pages.next().await.map_err(|source| LoadError::Read {
                name: name(),
                source,
            })?;
            for stored in &page {
                let recorded = stored.decode::<ArtifactEvent>();
                let recorded = recorded.map_err(|error| LoadError::Damaged {
                    name: name(),
                    source: error.into(),
                })?;
                let ArtifactEvent::Deleted {
                    artifacts: gone, ..
                } = recorded.event;
                let asked = gone.into_iter().filter(|digest| artifacts.contains(digest));
                found.extend(asked.map(|digest| (digest, recorded.time)));
            }
            if page.is_empty() {
                break;
            }
        }
    }
    Ok(found)
}
