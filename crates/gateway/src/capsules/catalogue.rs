//! Registered capsules with their compiled schemas, in memory; follows the log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use aod_domain::capsule::layers::{Comparison, Other};
use aod_domain::capsule::{self, CapsuleChain, Catalogue, Event, Registration};
use aod_domain::contract::{Contract, SCHEMA_SIZE_BYTES_MAX};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::Recorded;
use aod_domain::manifest::{self, CapsuleName, ResolveError, resolve};
use aod_domain::subject::{self, Subject};
use aod_domain::tenant::Tenant;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::event_log::{EventLog, ReadError, StoredEvent};
use aod_services::writer::Writer;
use serde_json::Value;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::streams;

/// Registrations read at a time.
const PAGE_SIZE: usize = 500;

/// Maximum number of compiled schemas in memory; when it is reached, all are dropped and compiled again on demand.
const SCHEMAS_MAX: usize = 1_000;

/// Maximum time that an answer waits until this gateway has read its own write.
const APPLIED_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) type Registered = Arc<Recorded<Registration>>;

/// The schema of a capsule.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) contract: Contract,
    /// The content of `schema.json`.
    pub(crate) document: Value,
}

/// The registered capsules of each tenant.
#[derive(Debug)]
pub(crate) struct Capsules {
    catalogues: RwLock<HashMap<Tenant, Catalogue>>,
    schemas: Mutex<HashMap<Digest, Arc<Schema>>>,
    /// Sequence of the last applied registration.
    applied: watch::Sender<u64>,
    log: Arc<dyn EventLog>,
    artifacts: Arc<dyn ArtifactStore>,
}

impl Capsules {
    /// Reads all registrations.
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

    /// Sequence of the last applied event of capsules; 0 for none.
    pub(crate) fn sequence(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Reads new registrations.
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

    /// Applies a registration.
    pub(crate) fn apply(&self, stored: &StoredEvent) {
        let mut catalogues = self
            .catalogues
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // The subscription and `catch_up` may both read an event.
        if stored.sequence <= self.sequence() {
            return;
        }
        match stored.decode::<Event>() {
            Ok(recorded) => {
                let tenant = Subject::tenant_of(&stored.subject).unwrap_or_default();
                catalogues.entry(tenant).or_default().apply(recorded);
            }
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "ignored an unreadable registration");
            }
        }
        self.applied.send_replace(stored.sequence);
    }

    /// Waits until the registration at `sequence` is applied.
    pub(crate) async fn wait_applied(&self, sequence: u64) {
        let mut applied = self.applied.subscribe();
        let seen = applied.wait_for(|&last| last >= sequence);
        if tokio::time::timeout(APPLIED_PATIENCE, seen).await.is_err() {
            tracing::warn!(
                sequence,
                "a registration is stored, but this gateway has not read it yet"
            );
        }
    }

    /// All registrations of `tenant`, sorted by name.
    pub(crate) fn all(&self, tenant: &Tenant) -> Vec<Registered> {
        let catalogues = self.read();
        let own = catalogues.get(tenant).into_iter();
        own.flat_map(Catalogue::iter)
            .cloned()
            .map(Arc::new)
            .collect()
    }

    /// The layers of the image of `registered`, compared with those of all other registered capsules.
    pub(crate) fn compared(&self, tenant: &Tenant, registered: &Registration) -> Comparison {
        let catalogues = self.read();
        let mut others = Vec::new();
        for (owner, catalogue) in &*catalogues {
            let is_own = owner == tenant;
            for other in catalogue.iter().map(|recorded| &recorded.event) {
                if !(is_own && other.name == registered.name) {
                    others.push(Other {
                        name: is_own.then(|| other.name.clone()),
                        image: other.image.clone(),
                    });
                }
            }
        }
        drop(catalogues);
        Comparison::of(&registered.image, &others)
    }

    /// The capsule of `tenant` that `text` names: by exact title or alias first, then by name.
    pub(crate) fn find(&self, tenant: &Tenant, text: &str) -> Result<Registered, ResolveError> {
        let catalogues = self.read();
        let own = catalogues.get(tenant);
        let name = resolve(text, names(own.into_iter().flat_map(Catalogue::iter)))?;
        let found = own.and_then(|own| own.get(name));
        Ok(Arc::new(found.expect("it was found among these").clone()))
    }

    /// As [`Capsules::find`]; for an unknown name, reads new registrations of other gateways from the log first.
    pub(crate) async fn get(&self, tenant: &Tenant, text: &str) -> Result<Registered> {
        if let Ok(found) = self.find(tenant, text) {
            return Ok(found);
        }
        self.catch_up().await?;
        self.find(tenant, text).map_err(|error| refusal(&error))
    }

    /// Removes the capsule of `tenant` that `text` names, and returns the sequence of the event once this gateway has
    /// applied it.
    pub(crate) async fn remove(
        &self,
        tenant: &Tenant,
        text: &str,
        requested_by: &str,
        writer: &Writer,
    ) -> Result<u64> {
        // Another gateway may have changed the capsule a moment ago.
        self.catch_up().await?;
        let registered = self.find(tenant, text).map_err(|error| refusal(&error))?;
        let name = registered.event.name.clone();
        let mut chain = CapsuleChain::new(tenant.clone(), name);
        let decide = |chain: &CapsuleChain, _| capsule::remove(chain, requested_by).map(Some);
        let sequence = writer.change(&mut chain, decide).await?;
        let sequence = sequence.expect("a change is an event");
        self.wait_applied(sequence).await;
        Ok(sequence)
    }

    /// The name of the capsule of `tenant` that `text` names.
    pub(crate) fn resolve(&self, tenant: &Tenant, text: &str) -> Option<CapsuleName> {
        let found = self.find(tenant, text).ok()?;
        Some(found.event.name.clone())
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Tenant, Catalogue>> {
        self.catalogues
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The compiled schema of a registration.
    pub(crate) async fn schema(&self, registration: &Registration) -> Result<Arc<Schema>> {
        let digest = registration.schema;
        if let Some(schema) = self.lock_schemas().get(&digest) {
            return Ok(Arc::clone(schema));
        }
        let content = self.artifacts.get_stream(digest, None).await?;
        let bytes = streams::whole(content.bytes, SCHEMA_SIZE_BYTES_MAX).await?;
        let damaged = |what: String| {
            Error::new(
                ErrorCode::Internal,
                format!("the registered schema of {} {what}", registration.name),
            )
        };
        let contract = Contract::parse(&bytes).map_err(|_| damaged("cannot be compiled".into()))?;
        let document = serde_json::from_slice(&bytes)
            .map_err(|error| damaged(format!("is not JSON: {error}")))?;
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

/// Names, titles and aliases of `registrations`, for [`resolve`].
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

fn refusal(error: &ResolveError) -> Error {
    let code = match error {
        ResolveError::Unknown { .. } => ErrorCode::UnknownCapsule,
        ResolveError::Ambiguous { .. } => ErrorCode::NameAmbiguous,
    };
    Error::new(code, error.to_string())
}
