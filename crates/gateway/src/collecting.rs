//! Garbage: what a store has, held against the whole log, and removed where nothing keeps it.
//!
//! The store is listed first, the log read from its first event to its end only then, and each removal is left
//! to the store, which refuses it for what was put or renewed meanwhile. What goes is in the log before it goes.
//! Between that and the removal it is looked whether operators have laid down something new: a hold that is in
//! the log before the event keeps its tree. So several gateways may collect at once, and die over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use aod_api::retention::{ArtifactCount, Collection};
use aod_domain::error_code::ErrorCode;
use aod_domain::retention::{
    ArtifactEvent, Class, Collectable, Plan, Retention, Survey, Tally, batches,
};
use aod_domain::subject;
use aod_ports::artifact_store::{Removal, StoreError};
use aod_ports::retention;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;

use crate::context::Context;
use crate::http::error::{ApiError, ApiResult, chain};

/// Events read at a time.
const PAGE_SIZE: usize = 1_000;

/// Artifacts that are removed at a time.
const REMOVALS_AT_A_TIME: usize = 16;

/// How often everything is looked at anew because operators have laid down something meanwhile.
const ROUNDS_MAX: usize = 5;

/// Artifacts that are found between two words about it.
const FOUND_PER_WORD: u64 = 10_000;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) found: u64,
    pub(crate) events: u64,
    pub(crate) removed: u64,
}

/// One collection.
pub(crate) struct Collector<'a, T> {
    pub(crate) context: &'a Context,
    pub(crate) requested_by: &'a str,
    pub(crate) is_dry_run: bool,
    /// Told how far it is; false once nobody wants to know. It stops then, between two pieces of its work: one that
    /// is cut off would leave marks in the store.
    pub(crate) tell: T,
    pub(crate) progress: Progress,
}

/// What was removed so far, and what could not be.
#[derive(Default)]
struct Removed {
    tallies: BTreeMap<Option<Class>, Tally>,
    failed: u64,
    failure: Option<String>,
}

/// A plan with what it was made for.
struct Planned {
    plan: Plan,
    /// What was put or renewed at this time or later stays.
    before: Timestamp,
    /// What operators had laid down, up to this event.
    laid_down: u64,
    as_of: u64,
}

impl<T: FnMut(Progress) -> bool + Send> Collector<'_, T> {
    /// Collects everything that may go, unless this is a dry run.
    pub(crate) async fn collect(mut self) -> ApiResult<Collection> {
        // One at a time here: each holds what the store has in memory.
        let _turn = self.context.collecting.lock().await;
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
        let text = "what is to be kept was changed again and again meanwhile";
        Err(ApiError::new(ErrorCode::BrokerUnavailable, text))
    }

    fn tell(&mut self) -> ApiResult<()> {
        if (self.tell)(self.progress) {
            return Ok(());
        }
        let text =
            "nobody waits for the collection any more: it goes on when it is asked for again";
        Err(ApiError::new(ErrorCode::Internal, text))
    }

    async fn plan(&mut self) -> ApiResult<Planned> {
        let log = self.context.runs.log().as_ref();
        let retention: Retention = retention::load(log).await?;
        let now = self.context.ports.clock.now();
        let mut survey = Survey::new(&retention, now, self.context.config.unnamed_for);
        let mut listed = self.context.ports.artifacts.list().await?;
        self.progress.found = 0;
        while let Some(found) = listed.try_next().await? {
            survey.found(found.digest, found.size_bytes, found.renewed_at);
            self.progress.found += 1;
            if self.progress.found.is_multiple_of(FOUND_PER_WORD) {
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
            // Reading events takes a while, and others have to go on.
            tokio::task::yield_now().await;
        }
        let before = survey.before();
        Ok(Planned {
            plan: survey.finish(),
            before,
            laid_down: retention.last,
            as_of,
        })
    }

    /// Removes what may go; false if operators have laid down something else meanwhile.
    async fn remove(&mut self, planned: &Planned, removed: &mut Removed) -> ApiResult<bool> {
        let log = self.context.runs.log();
        for batch in batches(&planned.plan.collect) {
            let collected = ArtifactEvent::Collected {
                artifacts: batch.iter().map(|artifact| artifact.digest).collect(),
                size_bytes: batch.iter().map(|artifact| artifact.size_bytes).sum(),
                requested_by: self.requested_by.to_owned(),
            };
            retention::tell(&self.context.runs, collected).await?;
            let last = log.read_last(subject::RETENTION).await?;
            if last.map_or(0, |stored| stored.sequence) != planned.laid_down {
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
    ) -> ApiResult<()> {
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
                // Put again meanwhile, or another gateway was faster.
                Ok(Removal::Young | Removal::Missing) => (),
                Err(error) => {
                    tracing::warn!(digest = %artifact.digest, error = chain(&error), "an artifact was not removed");
                    removed.failed += 1;
                    removed.failure.get_or_insert_with(|| chain(&error));
                    last_error = Some(error);
                }
            }
        }
        match last_error {
            // A store that does nothing at all is not asked for the rest.
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
        let collected = removed.tallies.iter();
        let kept = planned.plan.kept.iter().rev();
        Collection {
            dry_run: self.is_dry_run,
            collected: collected
                .map(|(class, tally)| count(class.map_or("unnamed", Class::as_str), tally))
                .collect(),
            kept: kept
                .map(|(kept, tally)| count(kept.as_str(), tally))
                .collect(),
            failed: removed.failed,
            failure: removed.failure,
            as_of: planned.as_of,
        }
    }
}

impl Removed {
    fn count(&mut self, artifact: &Collectable) {
        let tally = self.tallies.entry(artifact.class).or_default();
        tally.add(artifact.size_bytes);
    }
}
