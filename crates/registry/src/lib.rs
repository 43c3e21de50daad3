//! A registry of images for the engine of this host: the OCI distribution API over the artifact store.
//!
//! It listens on a loopback address, for which Docker needs no TLS. It has one repository and no lasting state: a
//! *transfer* opens it for one push or one pull, with a name and a secret of its own, and closes it when dropped. A
//! client without a transfer can do nothing. Blobs and manifests are artifacts under their own digests.
//!
//! Source of the API: OCI distribution specification 1.1.
//!
//! Images also leave and enter a host by name: [`remote`] sends and finds them in registries of others, [`layout`] in
//! directories.

pub mod exchange;
pub mod index;
pub mod labels;
pub mod layout;
pub mod manifest;
pub mod reference;
pub mod remote;

mod auth;
mod blobs;
mod connections;
mod error;
mod manifests;
mod transfer;
mod upload;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aod_domain::capsule::Image;
use aod_ports::artifact_store::ArtifactStore;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::warn;

pub use manifest::ManifestError;
pub use transfer::{PullError, Transfer};

use transfer::{Pull, Push, Role, Session};

/// The one repository. Its name stays the same, so that Docker remembers which layers it has pushed.
pub const REPOSITORY: &str = "aod";

/// The registry of one host. Ends when dropped.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    sessions: Sessions,
    task: JoinHandle<()>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Open transfers by name.
#[derive(Clone, Debug, Default)]
struct Sessions(Arc<Mutex<HashMap<String, Arc<Session>>>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    /// Listens on 127.0.0.1, on `port` if it is free: with the same port as before, Docker remembers which layers
    /// it has pushed.
    pub async fn serve(port: Option<u16>) -> io::Result<Self> {
        let listener = match port {
            None => listen(0).await?,
            Some(port) => match listen(port).await {
                Ok(listener) => listener,
                Err(error) => {
                    warn!(port, %error, "the port of the registry is taken; using another one");
                    listen(0).await?
                }
            },
        };
        let address = listener.local_addr()?;
        let sessions = Sessions::default();
        let router = router(&sessions);
        let task = tokio::spawn(connections::serve(listener, router));
        Ok(Self {
            address,
            sessions,
            task,
        })
    }

    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// Opens the registry for one push into `artifacts`.
    pub fn push(&self, artifacts: &Arc<dyn ArtifactStore>) -> Transfer {
        let role = Role::Push(Push::default());
        Transfer::open(self.address, &self.sessions, artifacts, role)
    }

    /// Opens the registry for one pull of `image` from `artifacts`.
    pub async fn pull(
        &self,
        image: &Image,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<Transfer, PullError> {
        let role = Role::Pull(Pull::of(image, artifacts).await?);
        Ok(Transfer::open(
            self.address,
            &self.sessions,
            artifacts,
            role,
        ))
    }
}

async fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}

fn router(sessions: &Sessions) -> Router {
    let base = format!("/v2/{REPOSITORY}");
    Router::new()
        .route("/v2/", get(auth::welcome))
        .route(
            &format!("{base}/manifests/{{reference}}"),
            get(manifests::get).put(manifests::put),
        )
        .route(&format!("{base}/blobs/{{digest}}"), get(blobs::get))
        .route(&format!("{base}/blobs/uploads/"), post(blobs::begin))
        .route(
            &format!("{base}/blobs/uploads/{{upload}}"),
            get(blobs::status)
                .patch(blobs::append)
                .put(blobs::finish)
                .delete(blobs::cancel),
        )
        .fallback(error::unknown_route)
        .layer(from_fn_with_state(sessions.clone(), auth::check))
        // Layers are streamed; a manifest has a limit of its own.
        .layer(DefaultBodyLimit::disable())
}
