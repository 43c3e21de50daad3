//! Starts and stops a gateway and its background tasks.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aod_archive::{ArchivedLog, Archiver};
use aod_audit::Sealer;
use aod_domain::id::GatewayId;
use aod_ports::event_log::ReadError;
use aod_services::program::inherit;
use aod_services::runs::Runs;
use axum::Router;
use futures::future::BoxFuture;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{self, Admitter};
use crate::background;
use crate::background::disk_room::DiskRoom;
use crate::background::log_room::LogRoom;
use crate::background::queues::{self, Queues};
use crate::capsules::catalogue::Capsules;
use crate::config::{Access, Config, Ports};
use crate::context::{Context, Shared};
use crate::http::server;
use crate::metrics::Metrics;
use crate::read_model::{ReadModel, ReadModelError};
use crate::routes;
use crate::runs::rerun::RecordedTrees;
use crate::runs::result_waiters::{self, ResultWaiters};
use crate::tokens::TokenBook;

/// Time that open answers have to end before they are aborted.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(10);

/// Errors at the start of a gateway, by what the operator does about them.
#[derive(Debug, Error)]
pub enum StartError {
    /// The network could use the gateway without a token.
    #[error(
        "{listen} is reachable from other hosts, but no tokens are configured: configure tokens, or listen on 127.0.0.1"
    )]
    Unprotected { listen: SocketAddr },
    /// The network could use the routes of agent-on-demand compatibility without a token.
    #[error(
        "{listen} is reachable from other hosts, but the gateway is open to agent-on-demand: listen on 127.0.0.1"
    )]
    OpenToNetwork { listen: SocketAddr },
    /// Another program uses the address, or the host does not have it.
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

/// A running gateway. Dropping it stops it immediately; [`Gateway::shutdown`] lets open answers finish.
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
    /// Starts a gateway; it serves requests when this function returns.
    ///
    /// # Errors
    /// [`StartError`]: the gateway does not run.
    pub async fn start(config: Config, ports: Ports) -> Result<Self, StartError> {
        let listen = config.listen;
        check_access(&config)?;
        let failed = |source| StartError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        let tls = config.tls.clone();
        if tls.is_none() && !listen.ip().is_loopback() {
            tracing::warn!(%listen, "this gateway uses plain HTTP: requests can be read on the network. Configure a \
               certificate (`aod certs`, --tls-certificate), or let only a proxy on this host reach the gateway");
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

    /// Starts a gateway that does not listen: the caller passes requests to the router. `config.listen` is ignored.
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

    /// The address that the gateway listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// URL at which nodes reach the gateway.
    pub fn url(&self) -> &str {
        &self.context.url
    }

    /// Id of the gateway in presence and events.
    pub fn id(&self) -> GatewayId {
        self.context.gateway
    }

    /// Accepts no more requests and stops; waiting callers get an answer without a result, and ask another gateway.
    pub async fn shutdown(self) {
        self.context.shutdown.cancel();
        self.context.tasks.close();
        if tokio::time::timeout(SHUTDOWN_PATIENCE, self.context.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                left = self.context.tasks.len(),
                "aborted answers that were still open"
            );
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.context.shutdown.cancel();
    }
}

/// Rejects a gateway that other hosts could use without a token.
fn check_access(config: &Config) -> Result<(), StartError> {
    let (listen, is_loopback) = (config.listen, config.listen.ip().is_loopback());
    match config.access {
        Access::Tokens(_) => (),
        Access::Development if !is_loopback => return Err(StartError::Unprotected { listen }),
        Access::Development => {
            tracing::warn!(%listen, "started for development: every user of this host can use the gateway without a token");
        }
        Access::TokensOrAgentOnDemand(_) if !is_loopback => {
            return Err(StartError::OpenToNetwork { listen });
        }
        Access::TokensOrAgentOnDemand(_) => {
            tracing::warn!(%listen, "open to agent-on-demand: every user of this host can start runs of the default tenant \
               and read their outputs without a token");
        }
    }
    Ok(())
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
        waiters: Arc::new(ResultWaiters::new(shutdown.clone())),
        capsules,
        admitter,
        tokens,
        queues: Queues::default(),
        recorded_trees: RecordedTrees::default(),
        read_model,
        metrics: Metrics::new(),
        log_room: LogRoom::default(),
        disk_room,
        garbage_collection: tokio::sync::Mutex::default(),
        shutdown,
        tasks: TaskTracker::new(),
    }))
}

/// Starts the background tasks; the subscription to results exists when this function returns.
async fn spawn_background(context: &Shared) -> Result<(), StartError> {
    let results = result_waiters::subscribe(context.runs.log().as_ref()).await?;
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
