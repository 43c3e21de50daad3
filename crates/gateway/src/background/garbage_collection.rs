//! Garbage collection: deletes artifacts that nothing in the log keeps.
//!
//! A gateway first lists the store, then reads the whole log, then records the deletion of a batch, then deletes the
//! batch. Before each batch is deleted, the gateway checks for new policies and holds: a hold stored before the
//! deletion keeps its tree. The store rejects the deletion of an artifact that was put or renewed in the meantime.
//! Several gateways may therefore collect garbage concurrently, and may die at any point.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use aod_api::retention::{ArtifactCount, CapsuleStorage, Collection};
use aod_domain::error_code::ErrorCode;
use aod_domain::retention::{
    ArtifactEvent, Class, Collectable, Plan, Retention, Survey, Tally, batches,
};
use aod_domain::subject;
use aod_ports::artifact_store::{Removal, StoreError};
use aod_services::retention;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;

use crate::context::Context;
use crate::error::{Error, Result};
use aod_services::error::chain;

/// Events read at a time.
const PAGE_SIZE: usize = 1_000;

/// Artifacts that are deleted concurrently.
const REMOVALS_AT_A_TIME: usize = 16;

/// Maximum number of rounds; a change of policies or holds starts a new round.
const ROUNDS_MAX: usize = 5;

/// Artifacts found between two progress reports.
const FOUND_PER_REPORT: u64 = 10_000;

/// Progress of a garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) found: u64,
    pub(crate) events: u64,
    pub(crate) removed: u64,
}

/// One garbage collection.
pub(crate) struct Collector<'a, T> {
    pub(crate) context: &'a Context,
    pub(crate) requested_by: &'a str,
    pub(crate) is_dry_run: bool,
    /// Reports progress; returns false if the caller has disconnected. The garbage collection then stops between two
    /// batches: a batch that is cut off would leave marks in the store.
    pub(crate) tell: T,
    pub(crate) progress: Progress,
}

/// Artifacts deleted so far, and failures.
#[derive(Default)]
struct Removed {
    tallies: BTreeMap<Option<Class>, Tally>,
    failed: u64,
    failure: Option<String>,
}

/// A plan and the state that it is based on.
struct Planned {
    plan: Plan,
    /// Artifacts put or renewed at this time or later are kept.
    before: Timestamp,
    /// Sequence of the last event of policies and holds.
    retention: u64,
    as_of: u64,
}

impl<T: FnMut(Progress) -> bool + Send> Collector<'_, T> {
    /// Deletes all garbage, unless this is a dry run.
    pub(crate) async fn collect(mut self) -> Result<Collection> {
        // Each garbage collection holds the list of the store in memory: one at a time.
        let _turn = self.context.garbage_collection.lock().await;
        let mut removed = Removed::default();
        for _ in 0..ROUNDS_MAX {
            let planned = self.plan().await?;
            if self.is_dry_run {
                for collectable in &planned.plan.collect {
                    removed.count(collectable);
                }
                return Ok(self.report(&planned, removed));
            }
            if self.remove(&planned, &mut removed).await? {
                return Ok(self.report(&planned, removed));
            }
        }
        let text = "policies or holds changed during each of five attempts: retry later";
        Err(Error::new(ErrorCode::BrokerUnavailable, text))
    }

    fn tell(&mut self) -> Result<()> {
        if (self.tell)(self.progress) {
            return Ok(());
        }
        let text = "the caller has disconnected: start the garbage collection again to continue it";
        Err(Error::new(ErrorCode::Internal, text))
    }

    async fn plan(&mut self) -> Result<Planned> {
        let log = self.context.runs.log().as_ref();
        let retention: Retention = retention::load(log).await?;
        let now = self.context.ports.clock.now();
        let mut survey = Survey::new(&retention, now, self.context.config.unnamed_for);
        let mut listed = self.context.ports.artifacts.list().await?;
        self.progress.found = 0;
        while let Some(found) = listed.try_next().await? {
            survey.found(found.digest, found.size_bytes, found.renewed_at);
            self.progress.found += 1;
            if self.progress.found.is_multiple_of(FOUND_PER_REPORT) {
                self.tell()?;
            }
        }
        let mut as_of = 0;
        self.progress.events = 0;
        loop {
            let page = log.read(subject::ALL, as_of, PAGE_SIZE).await?;
            for stored in &page {
                survey.take(&stored.subject, &stored.bytes);
                as_of = stored.sequence;
            }
            self.progress.events += page.len() as u64;
            self.tell()?;
            if page.len() < PAGE_SIZE {
                break;
            }
            // Reading events takes long; other tasks must run in between.
            tokio::task::yield_now().await;
        }
        let before = survey.before();
        Ok(Planned {
            plan: survey.finish(),
            before,
            retention: retention.sequence(),
            as_of,
        })
    }

    /// Deletes the planned artifacts; false if policies or holds have changed.
    async fn remove(&mut self, planned: &Planned, removed: &mut Removed) -> Result<bool> {
        let log = self.context.runs.log();
        for batch in batches(&planned.plan.collect) {
            let deleted = ArtifactEvent::Deleted {
                artifacts: batch.iter().map(|artifact| artifact.digest).collect(),
                size_bytes: batch.iter().map(|artifact| artifact.size_bytes).sum(),
                requested_by: self.requested_by.to_owned(),
            };
            retention::record_deletion(self.context.runs.writer(), deleted).await?;
            let last = log.read_last(subject::RETENTION).await?;
            if last.map_or(0, |stored| stored.sequence) != planned.retention {
                return Ok(false);
            }
            self.remove_batch(batch, planned.before, removed).await?;
            self.tell()?;
        }
        Ok(true)
    }

    async fn remove_batch(
        &mut self,
        batch: &[Collectable],
        before: Timestamp,
        removed: &mut Removed,
    ) -> Result<()> {
        let removals = stream::iter(batch.to_vec()).map(|artifact| {
            let artifacts = Arc::clone(&self.context.ports.artifacts);
            async move {
                let removal = artifacts.remove(artifact.digest, before).await;
                (artifact, removal)
            }
        });
        let removals: Vec<(Collectable, Result<Removal, StoreError>)> =
            removals.buffered(REMOVALS_AT_A_TIME).collect().await;
        let mut last_error = None;
        let failed_before = removed.failed;
        for (artifact, removal) in removals {
            match removal {
                Ok(Removal::Removed) => {
                    removed.count(&artifact);
                    self.progress.removed += 1;
                }
                // The artifact was put again, or another gateway was faster.
                Ok(Removal::Young | Removal::Missing) => (),
                Err(error) => {
                    tracing::warn!(digest = %artifact.digest, error = chain(&error), "cannot delete an artifact");
                    removed.failed += 1;
                    removed.failure.get_or_insert_with(|| chain(&error));
                    last_error = Some(error);
                }
            }
        }
        match last_error {
            // If the store fails for a whole batch, the rest of the batches would fail too.
            Some(error) if removed.failed - failed_before == batch.len() as u64 => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    fn report(&self, planned: &Planned, removed: Removed) -> Collection {
        let count = |kind: &str, tally: &Tally| ArtifactCount {
            kind: kind.to_owned(),
            artifacts: tally.artifacts,
            size_bytes: tally.size_bytes,
        };
        let deleted = removed.tallies.iter();
        let kept = planned.plan.kept.iter().rev();
        Collection {
            dry_run: self.is_dry_run,
            deleted: deleted
                .map(|(class, tally)| count(class.map_or("unnamed", Class::as_str), tally))
                .collect(),
            kept: kept
                .map(|(kept, tally)| count(kept.as_str(), tally))
                .collect(),
            capsules: capsules(&planned.plan),
            failed: removed.failed,
            failure: removed.failure,
            as_of: planned.as_of,
        }
    }
}

/// The largest first.
fn capsules(plan: &Plan) -> Vec<CapsuleStorage> {
    let views = plan.capsules.iter().map(|capsule| CapsuleStorage {
        tenant: capsule.tenant.to_string(),
        capsule: capsule.capsule.to_string(),
        size_bytes: capsule.named.size_bytes,
        own_bytes: capsule.own.size_bytes,
    });
    let mut views: Vec<_> = views.collect();
    views.sort_by_key(|view| Reverse((view.own_bytes, view.size_bytes)));
    views
}

impl Removed {
    fn count(&mut self, artifact: &Collectable) {
        let tally = self.tallies.entry(artifact.class).or_default();
        tally.add(artifact.size_bytes);
    }
}
