//! The registered capsules, in memory: kept up to date from the log, with their schemas compiled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use aod_domain::capsule::{Catalogue, Event, Handoffs, Registration};
use aod_domain::contract::{Contract, SCHEMA_SIZE_BYTES_MAX};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::Recorded;
use aod_domain::manifest::{self, ResolveError, resolve};
use aod_domain::subject::{self, Subject};
use aod_domain::tenant::Tenant;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::event_log::{EventLog, ReadError, StoredEvent};
use serde_json::Value;
use tokio::sync::watch;

use crate::http::body;
use crate::http::error::{ApiError, ApiResult};

/// Registrations read at a time.
const PAGE_SIZE: usize = 500;

/// Compiled schemas that are kept; beyond them all are dropped and compiled again when asked for.
const SCHEMAS_MAX: usize = 1_000;

/// How long an answer waits until this gateway has read what it has just written itself.
const APPLIED_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) type Registered = Arc<Recorded<Registration>>;

/// The schema of a capsule.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) contract: Contract,
    /// `schema.json` as it is.
    pub(crate) document: Value,
}

/// The capsules that can be called, of each tenant its own.
#[derive(Debug)]
pub(crate) struct Capsules {
    catalogues: RwLock<HashMap<Tenant, Catalogue>>,
    schemas: Mutex<HashMap<Digest, Arc<Schema>>>,
    /// The last registration taken in.
    applied: watch::Sender<u64>,
    log: Arc<dyn EventLog>,
    artifacts: Arc<dyn ArtifactStore>,
}

impl Capsules {
    /// Reads all registrations there are.
    pub(crate) async fn load(
        log: Arc<dyn EventLog>,
        artifacts: Arc<dyn ArtifactStore>,
    ) -> Result<Self, ReadError> {
        let capsules = Self {
            catalogues: RwLock::default(),
            schemas: Mutex::default(),
            applied: watch::Sender::new(0),
            log,
            artifacts,
        };
        capsules.catch_up().await?;
        Ok(capsules)
    }

    /// The last event about capsules that was taken in; 0 for none.
    pub(crate) fn sequence(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Reads what was registered meanwhile.
    async fn catch_up(&self) -> Result<(), ReadError> {
        loop {
            let page = self
                .log
                .read(subject::CAPSULES, self.sequence(), PAGE_SIZE)
                .await?;
            for stored in &page {
                self.apply(stored);
            }
            if page.len() < PAGE_SIZE {
                return Ok(());
            }
        }
    }

    /// Takes in what somebody registered.
    pub(crate) fn apply(&self, stored: &StoredEvent) {
        let mut catalogues = self
            .catalogues
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // The subscription and a catching up may both bring an event.
        if stored.sequence <= self.sequence() {
            return;
        }
        match stored.decode::<Event>() {
            Ok(recorded) => {
                let tenant = Subject::tenant_of(&stored.subject).unwrap_or_default();
                catalogues.entry(tenant).or_default().apply(recorded);
            }
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "a registration cannot be read");
            }
        }
        self.applied.send_replace(stored.sequence);
    }

    /// Waits until the registration at `sequence` can be seen here.
    pub(crate) async fn wait_applied(&self, sequence: u64) {
        let mut applied = self.applied.subscribe();
        let seen = applied.wait_for(|&last| last >= sequence);
        if tokio::time::timeout(APPLIED_PATIENCE, seen).await.is_err() {
            tracing::warn!(
                sequence,
                "a registration was stored, but has not been read back yet"
            );
        }
    }

    /// All registrations of `tenant`, by name.
    pub(crate) fn all(&self, tenant: &Tenant) -> Vec<Registered> {
        let catalogues = self.read();
        let own = catalogues.get(tenant).into_iter();
        own.flat_map(Catalogue::iter)
            .cloned()
            .map(Arc::new)
            .collect()
    }

    /// The capsule of `tenant` that `text` stands for: exact title or alias first, then name.
    pub(crate) fn find(&self, tenant: &Tenant, text: &str) -> Result<Registered, ResolveError> {
        let catalogues = self.read();
        let own = catalogues.get(tenant);
        let name = resolve(text, names(own.into_iter().flat_map(Catalogue::iter)))?;
        let found = own.and_then(|own| own.get(name));
        Ok(Arc::new(found.expect("it was found among these").clone()))
    }

    /// As [`Capsules::find`]; what is not known is looked for in the log, since another gateway
    /// may have registered it a moment ago.
    pub(crate) async fn get(&self, tenant: &Tenant, text: &str) -> ApiResult<Registered> {
        if let Ok(found) = self.find(tenant, text) {
            return Ok(found);
        }
        self.catch_up().await?;
        self.find(tenant, text).map_err(|error| refusal(&error))
    }

    /// Whether `handoffs` of a caller of `tenant` allow to call `target`.
    pub(crate) fn allows(
        &self,
        tenant: &Tenant,
        handoffs: &Handoffs,
        target: &Registration,
    ) -> bool {
        match handoffs {
            Handoffs::Open => true,
            Handoffs::Listed(grants) => grants.iter().any(|grant| {
                self.find(tenant, &grant.target)
                    .is_ok_and(|found| found.event.name == target.name)
            }),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Tenant, Catalogue>> {
        self.catalogues
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The compiled schema of a registration.
    pub(crate) async fn schema(&self, registration: &Registration) -> ApiResult<Arc<Schema>> {
        let digest = registration.schema;
        if let Some(schema) = self.lock_schemas().get(&digest) {
            return Ok(Arc::clone(schema));
        }
        let content = self.artifacts.get_stream(digest, None).await?;
        let bytes = body::whole(content.bytes, SCHEMA_SIZE_BYTES_MAX as u64).await?;
        let damaged = |what: String| {
            ApiError::new(
                ErrorCode::Internal,
                format!("the registered schema of {} {what}", registration.name),
            )
        };
        let contract = Contract::parse(&bytes).map_err(|_| damaged("cannot be compiled".into()))?;
        let document = serde_json::from_slice(&bytes)
            .map_err(|error| damaged(format!("is no JSON: {error}")))?;
        let schema = Arc::new(Schema { contract, document });
        let mut schemas = self.lock_schemas();
        if schemas.len() >= SCHEMAS_MAX {
            schemas.clear();
        }
        schemas.insert(digest, Arc::clone(&schema));
        Ok(schema)
    }

    fn lock_schemas(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Arc<Schema>>> {
        self.schemas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What `registrations` are called, for [`resolve`].
pub(crate) fn names<'a>(
    registrations: impl IntoIterator<Item = &'a Recorded<Registration>>,
) -> impl Iterator<Item = manifest::Registered<'a>> {
    registrations.into_iter().map(|recorded| {
        let Registration {
            name,
            title,
            aliases,
            ..
        } = &recorded.event;
        manifest::Registered {
            name,
            title: title.as_deref(),
            aliases,
        }
    })
}

fn refusal(error: &ResolveError) -> ApiError {
    let code = match error {
        ResolveError::Unknown { .. } => ErrorCode::UnknownCapsule,
        ResolveError::Ambiguous { .. } => ErrorCode::NameAmbiguous,
    };
    ApiError::new(code, error.to_string())
}
