//! Models for capsules: the proxy of a run's channel, which adds the operator's key, meters, and keeps to
//! the budget of the tree. A key never enters a container.
//!
//! ```text
//! settings   the operator's providers and prices
//! body       a request as it came; asked: what it asks for
//! format     what the three formats say of answers
//! meter      reads an answer while it passes
//! access     what one attempt may have; the calls it makes
//! settlement the end of each, whatever it was
//! keeping    what was asked and answered, where the operator wants it kept
//! wire       where requests go, what of answers is passed on
//! ```

mod access;
mod asked;
mod body;
mod format;
mod keeping;
mod meter;
mod refusal;
mod settings;
mod settlement;
mod wire;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aod_ports::runs::Runs;
use aod_ports::secrets::SecretStore;
use aod_ports::spending::Accounts;
use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::access::{Asker, ModelAccess, forward};
pub use self::keeping::CONTENT_BYTES_MAX;
pub(crate) use self::keeping::Keeper;
pub use self::settings::{MalformedModels, ModelSettings};
pub(crate) use self::wire::SOURCE_HEADER;

/// How long a provider may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a provider may be silent: models that think send nothing for minutes.
const SILENCE_MAX: Duration = Duration::from_secs(15 * 60);

/// Requests that are held at one time, in KiB: a node has many capsules, and their memory is not its own.
const HELD_KIBIBYTES_MAX: u32 = 256 << 10;

/// What all attempts of a node share for calls of models.
#[derive(Debug)]
pub(crate) struct Models {
    /// Made when the first capsule asks: most never do, and it reads all certificates of its host.
    client: OnceLock<Client>,
    /// Room for requests, in KiB.
    room: Arc<Semaphore>,
    pub(crate) settings: Arc<ModelSettings>,
    pub(crate) secrets: Arc<dyn SecretStore>,
    pub(crate) accounts: Accounts,
    pub(crate) runs: Runs,
    /// None where contents are not kept.
    keeper: Option<Arc<Keeper>>,
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
            room: Arc::new(Semaphore::new(HELD_KIBIBYTES_MAX as usize)),
            settings,
            secrets,
            accounts: Accounts::new(runs.clone()),
            runs,
            keeper: keeper.map(Arc::new),
        }
    }

    /// Waits until the node has room for a request of so many bytes.
    async fn room_for(&self, size_bytes: usize) -> OwnedSemaphorePermit {
        let kibibytes = u32::try_from(size_bytes / 1_024 + 1).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room);
        let room = room
            .acquire_many_owned(kibibytes.min(HELD_KIBIBYTES_MAX))
            .await;
        room.expect("it is never closed")
    }

    /// # Errors
    /// A bug, or a broken TLS set-up.
    fn client(&self) -> Result<&Client, reqwest::Error> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // Another crate of the same program may ask for TLS without choosing who does it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_MAX)
            // A provider that sends elsewhere would be sent the key with the request.
            .redirect(Policy::none())
            .build()?;
        Ok(self.client.get_or_init(|| client))
    }
}
