//! The providers, their keys and connections, and the memory for requests, which all attempts of a node share.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aod_ports::secrets::SecretStore;
use aod_services::runs::Runs;
use aod_services::spending::Accounts;
use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::keeping::Keeper;
use super::settings::ModelSettings;

/// How long a provider may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a provider may be silent: reasoning models send nothing for minutes.
const SILENCE_MAX: Duration = Duration::from_secs(15 * 60);

/// Memory for concurrent requests, in KiB: a node has many capsules, and their requests take the node's memory.
const HELD_KIBIBYTES_MAX: u32 = 256 << 10;

/// The state that all attempts of a node share for calls of models.
#[derive(Debug)]
pub(crate) struct Models {
    /// Built for the first request, because it reads all certificates of the host.
    client: OnceLock<Client>,
    /// Memory for requests, in KiB.
    memory: Arc<Semaphore>,
    pub(super) settings: Arc<ModelSettings>,
    pub(super) secrets: Arc<dyn SecretStore>,
    pub(super) accounts: Accounts,
    pub(super) runs: Runs,
    /// None if the node does not store contents.
    pub(super) keeper: Option<Arc<Keeper>>,
}

impl Models {
    pub(crate) fn new(
        settings: Arc<ModelSettings>,
        secrets: Arc<dyn SecretStore>,
        runs: Runs,
        keeper: Option<Keeper>,
    ) -> Self {
        Self {
            client: OnceLock::new(),
            memory: Arc::new(Semaphore::new(HELD_KIBIBYTES_MAX as usize)),
            settings,
            secrets,
            accounts: Accounts::new(runs.writer().clone()),
            runs,
            keeper: keeper.map(Arc::new),
        }
    }

    /// Waits until the node has memory for a request of `size_bytes`.
    pub(super) async fn memory_for(&self, size_bytes: usize) -> OwnedSemaphorePermit {
        let kibibytes = u32::try_from(size_bytes / 1_024 + 1).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.memory);
        let permit = memory
            .acquire_many_owned(kibibytes.min(HELD_KIBIBYTES_MAX))
            .await;
        permit.expect("the semaphore is never closed")
    }

    /// # Errors
    /// A bug, or a broken TLS setup.
    pub(super) fn client(&self) -> Result<&Client, reqwest::Error> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // Another crate of the same program may use TLS without choosing a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_MAX)
            // A redirect would send the key to another host.
            .redirect(Policy::none())
            .build()?;
        Ok(self.client.get_or_init(|| client))
    }
}
