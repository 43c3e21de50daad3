//! The start and the end of a gateway, and the tasks behind its routes.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aod_archive::{ArchivedLog, Archiver};
use aod_audit::Sealer;
use aod_domain::id::GatewayId;
use aod_ports::event_log::ReadError;
use aod_ports::program::inherit;
use aod_ports::runs::Runs;
use axum::Router;
use futures::future::BoxFuture;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{self, Admitter};
use crate::background;
use crate::catalogue::Capsules;
use crate::config::{Access, Config, Ports};
use crate::context::{Context, Shared};
use crate::disk_room::DiskRoom;
use crate::http::server;
use crate::log_room::LogRoom;
use crate::metrics::Metrics;
use crate::queues::{self, Queues};
use crate::read_model::{ReadModel, ReadModelError};
use crate::rerun::RecordedTrees;
use crate::routes;
use crate::tokens::TokenBook;
use crate::waiters::{self, Waiters};

/// How long open answers may take to end before they are broken off.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(10);

/// Why a gateway does not start, sorted by what the operator does about it.
#[derive(Debug, Error)]
pub enum StartError {
    /// Everyone on the network could use it: give it tokens, or let it listen on loopback.
    #[error("{listen} can be reached from other hosts, but there are no tokens")]
    Unprotected { listen: SocketAddr },
    /// Another program has the address, or it is not of this host.
    #[error("cannot listen on {listen}")]
    Listen {
        listen: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// The broker does not answer.
    #[error(transparent)]
    Log(#[from] ReadError),
    /// The data directory is not usable.
    #[error(transparent)]
    ReadModel(#[from] ReadModelError),
}

/// A running gateway. Dropping it ends it at once; [`Gateway::shutdown`] lets open answers finish.
pub struct Gateway {
    context: Shared,
    local_addr: SocketAddr,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Gateway")
            .field("local_addr", &self.local_addr)
            .finish_non_exhaustive()
    }
}

impl Gateway {
    /// Starts a gateway; it serves when this returns.
    ///
    /// # Errors
    /// [`StartError`]: nothing runs then.
    pub async fn start(config: Config, ports: Ports) -> Result<Self, StartError> {
        let listen = config.listen;
        if matches!(config.access, Access::Development) {
            if !listen.ip().is_loopback() {
                return Err(StartError::Unprotected { listen });
            }
            tracing::warn!(%listen, "started for development: whoever is on this host may use it without a token");
        }
        let failed = |source| StartError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        let tls = config.tls.clone();
        if tls.is_none() && !listen.ip().is_loopback() {
            tracing::warn!(%listen, "what people and nodes say to this gateway can be read on the network: give it a \
                certificate (`aod certs`, --tls-certificate), unless a proxy on this host alone reaches it");
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = config
            .public_url
            .clone()
            .unwrap_or_else(|| format!("{scheme}://{local_addr}"));
        let (gateway, router) = Self::assemble(config, ports, local_addr, url).await?;
        let context = &gateway.context;
        let serve = server::serve(
            listener,
            tls,
            router,
            context.shutdown.clone(),
            context.tasks.clone(),
        );
        context.tasks.spawn(inherit(serve));
        tracing::info!(gateway = %context.gateway, %local_addr, url = context.url, "gateway started");
        Ok(gateway)
    }

    /// Starts a gateway that does not listen: whoever has connections of another kind hands their
    /// requests to the router. `config.listen` is not looked at.
    pub async fn start_detached(
        config: Config,
        ports: Ports,
        url: String,
    ) -> Result<(Self, Router), StartError> {
        let local_addr = config.listen;
        Self::assemble(config, ports, local_addr, url).await
    }

    async fn assemble(
        config: Config,
        ports: Ports,
        local_addr: SocketAddr,
        url: String,
    ) -> Result<(Self, Router), StartError> {
        let context = context(config, ports, url).await?;
        spawn_background(&context).await?;
        let router = routes::router(Arc::clone(&context));
        let gateway = Self {
            context,
            local_addr,
        };
        Ok((gateway, router))
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Where nodes reach it.
    pub fn url(&self) -> &str {
        &self.context.url
    }

    /// The name by which it goes in presence and events.
    pub fn id(&self) -> GatewayId {
        self.context.gateway
    }

    /// Takes no more requests and ends; callers that wait are told to ask again elsewhere.
    pub async fn shutdown(self) {
        self.context.shutdown.cancel();
        self.context.tasks.close();
        if tokio::time::timeout(SHUTDOWN_PATIENCE, self.context.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                left = self.context.tasks.len(),
                "answers were still open and are broken off"
            );
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.context.shutdown.cancel();
    }
}

async fn context(config: Config, ports: Ports, url: String) -> Result<Shared, StartError> {
    let gateway = GatewayId::new(ports.clock.fresh_uuid());
    let shutdown = CancellationToken::new();
    let artifacts = Arc::clone(&ports.artifacts);
    let archived_log = ArchivedLog::new(ports.log, artifacts, Arc::clone(&ports.clock));
    let ports = Ports {
        log: Arc::new(archived_log.clone()),
        ..ports
    };
    let runs = Runs::new(
        Arc::clone(&ports.log),
        Arc::clone(&ports.clock),
        &format!("/gateway/{gateway}"),
    );
    let capsules = Capsules::load(Arc::clone(&ports.log), Arc::clone(&ports.artifacts)).await?;
    let admitter = Admitter::load(ports.log.as_ref()).await?;
    let tokens = TokenBook::load(ports.log.as_ref()).await?;
    let (directory, delay) = (&config.data_directory, config.lists_delay);
    let read_model = ReadModel::open(directory, delay, ports.log.as_ref()).await?;
    let spool = ports.artifacts.spool_directory().to_owned();
    let disk_room = DiskRoom::new([config.data_directory.clone(), spool], config.disk_reserve);
    Ok(Arc::new(Context {
        config,
        ports,
        gateway,
        url,
        runs,
        archived_log,
        waiters: Arc::new(Waiters::new(shutdown.clone())),
        capsules,
        admitter,
        tokens,
        queues: Queues::default(),
        recorded_trees: RecordedTrees::default(),
        read_model,
        metrics: Metrics::new(),
        log_room: LogRoom::default(),
        disk_room,
        collecting: tokio::sync::Mutex::default(),
        shutdown,
        tasks: TaskTracker::new(),
    }))
}

/// Starts what goes on behind the routes; the subscription to results is there when this returns.
async fn spawn_background(context: &Shared) -> Result<(), StartError> {
    let results = waiters::subscribe(context.runs.log().as_ref()).await?;
    let begin =
        |task: fn(Shared) -> BoxFuture<'static, ()>| spawn(context, task(Arc::clone(context)));
    begin(|shared| Box::pin(async move { background::follow_capsules(&shared).await }));
    begin(|shared| Box::pin(async move { background::follow_tokens(&shared).await }));
    begin(|shared| Box::pin(async move { background::follow_read_model(&shared).await }));
    begin(|shared| Box::pin(async move { background::announce(&shared).await }));
    begin(|shared| Box::pin(async move { background::watch_fill(&shared).await }));
    begin(|shared| Box::pin(async move { background::reconcile(&shared).await }));
    begin(|shared| Box::pin(async move { background::keep_queue(&shared).await }));
    begin(|shared| Box::pin(async move { background::open_queues(&shared).await }));
    begin(|shared| {
        Box::pin(async move {
            let (rules, runs) = (
                background::follow_rules(&shared),
                admission::follow_runs(&shared),
            );
            tokio::join!(rules, runs, admission::admit(&shared));
        })
    });
    begin(|shared| Box::pin(async move { queues::remove_empty(&shared).await }));
    let shared = Arc::clone(context);
    spawn(context, async move {
        shared.waiters.follow(results).await;
    });
    if let Some(age) = context.config.log_age {
        let archiver = Archiver::new(
            context.archived_log.clone(),
            Arc::clone(&context.ports.artifacts),
            context.runs.clone(),
            age,
        );
        let shared = Arc::clone(context);
        spawn(context, async move {
            background::archive(&shared, archiver).await;
        });
    }
    let sealer = Sealer::new(
        Arc::clone(&context.ports.ends),
        context.runs.clone(),
        Arc::clone(&context.config.seal_key),
    );
    spawn(context, sealer.run(context.shutdown.clone()));
    Ok(())
}

fn spawn(context: &Shared, task: impl Future<Output = ()> + Send + 'static) {
    context.tasks.spawn(inherit(task));
}
