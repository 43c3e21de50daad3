//! The access of one attempt to models: its grants, and its usage.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aod_domain::capsule::ModelGrant;
use aod_domain::id::RunId;
use aod_domain::manifest::CapsuleName;
use aod_domain::run::Run;
use aod_domain::spending::{Budget, Spent};
use aod_domain::tenant::Tenant;
use tokio_util::task::TaskTracker;

use super::shared::Models;
use crate::lock::lock;
use crate::record::notes::FactNotes;
use crate::secrets::redaction::Redaction;

/// How long the end of an attempt waits until the usage of its calls is stored.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// The access of one attempt to models.
#[derive(Debug)]
pub(crate) struct ModelAccess {
    pub(super) models: Arc<Models>,
    pub(super) asker: Asker,
    spent: Mutex<Spent>,
    pub(super) notes: FactNotes,
    pub(super) redaction: Redaction,
    pub(super) tasks: TaskTracker,
}

/// The attempt and its grants.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) tenant: Tenant,
    pub(crate) run: RunId,
    pub(crate) attempt: u32,
    pub(crate) capsule: CapsuleName,
    pub(crate) grant: Option<ModelGrant>,
    /// Budget of the whole tree.
    pub(crate) tree: Budget,
}

impl Asker {
    pub(crate) fn of(run: &Run, attempt: u32, grant: Option<&ModelGrant>) -> Self {
        let launched = &run.launched.event;
        Self {
            tenant: launched.tenant.clone(),
            run: run.id,
            attempt,
            capsule: launched.work.name().clone(),
            grant: grant.cloned(),
            tree: launched.budget,
        }
    }

    /// The budget that `agent.yaml` sets for one run.
    pub(super) fn own(&self) -> Budget {
        self.grant
            .as_ref()
            .map(|grant| grant.budget)
            .unwrap_or_default()
    }
}

impl ModelAccess {
    /// `redaction` applies to stored requests and answers.
    pub(crate) fn new(
        models: Arc<Models>,
        asker: Asker,
        notes: FactNotes,
        redaction: Redaction,
    ) -> Arc<Self> {
        Arc::new(Self {
            models,
            asker,
            spent: Mutex::default(),
            notes,
            redaction,
            tasks: TaskTracker::new(),
        })
    }

    /// The usage of the attempt, once its calls are settled or the time is over; none without calls.
    pub(crate) async fn settled(&self) -> Option<Spent> {
        self.tasks.close();
        // Calls that are not stored by then count as reserved.
        let _ = tokio::time::timeout(SETTLE_PATIENCE, self.tasks.wait()).await;
        let spent = *lock(&self.spent);
        (spent.model_calls > 0).then_some(spent)
    }

    /// The number of settled calls.
    pub(super) fn calls(&self) -> u64 {
        lock(&self.spent).model_calls
    }

    pub(super) fn add(&self, spent: Spent) {
        *lock(&self.spent) += spent;
    }
}
