//! The egress of a capsule: HTTP CONNECT on its channel, to hosts that its list and the operator allow.
//!
//! ```text
//! name in both lists → addresses of the name → the first public address → connection to exactly that address
//! ```
//!
//! The node resolves a name once, so a name that resolves differently the second time (DNS rebinding) has no effect.

pub(crate) mod proxy;
mod system;
#[cfg(test)]
mod tests;
mod tunnel;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aod_api::problem::Problem;
use aod_domain::egress::{self, Host, Permission};
use aod_domain::error_code::ErrorCode;
use aod_domain::run::EgressUsage;
use aod_ports::network::{Connection, Network};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

pub use self::system::SystemNetwork;
use self::tunnel::{IDLE_MAX, Moved};
use crate::counting::Counted;
use crate::lock::lock;
use crate::record::notes::{Connected, FactNotes, Reporter};
use aod_services::error::chain;

/// How long resolving a name, and then connecting, may take. Source: common proxies.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);

/// The egress of one attempt.
#[derive(Debug)]
pub(crate) struct Egress {
    listed: Vec<Permission>,
    permitted: Vec<Permission>,
    network: Arc<dyn Network>,
    notes: FactNotes,
    used: Mutex<EgressUsage>,
    /// The number of open connections.
    open: watch::Sender<usize>,
    closed: CancellationToken,
}

/// A new connection to an external host.
pub(crate) struct Reached {
    egress: Arc<Egress>,
    place: Place,
    outside: Box<dyn Connection>,
    address: IpAddr,
    began: Instant,
    open: Counted,
    reporter: Reporter,
}

/// The destination that a capsule requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl Egress {
    pub(crate) fn new(
        listed: Vec<Permission>,
        permitted: Vec<Permission>,
        network: Arc<dyn Network>,
        notes: FactNotes,
    ) -> Arc<Self> {
        Arc::new(Self {
            listed,
            permitted,
            network,
            notes,
            used: Mutex::default(),
            open: watch::Sender::new(0),
            closed: CancellationToken::new(),
        })
    }

    /// Connects to `place` if the capsule may reach it; notes a refusal.
    async fn reach(self: &Arc<Self>, place: Place) -> Result<Reached, Box<Problem>> {
        if self.closed.is_cancelled() {
            let text = "the run is ending and accepts no new connections";
            return Err(Box::new(Problem::new(ErrorCode::RunEnded, text)));
        }
        let began = Instant::now();
        let address = match self.address(&place).await {
            Ok(address) => address,
            Err(problem) => {
                self.refused(&place.host.to_string(), Some(place.port), &problem)
                    .await;
                return Err(problem);
            }
        };
        let connecting = self.network.connect(SocketAddr::new(address, place.port));
        let outside = match timeout(REACH_TIMEOUT, connecting).await {
            Ok(Ok(outside)) => outside,
            Ok(Err(error)) => return Err(unreachable(&place, "reached", &chain(&error))),
            Err(_) => return Err(unreachable(&place, "reached", &took_too_long())),
        };
        Ok(Reached {
            egress: Arc::clone(self),
            place,
            outside,
            address,
            began,
            open: Counted::begin(&self.open),
            reporter: self.notes.begin(),
        })
    }

    /// Chooses the address to connect to.
    async fn address(&self, place: &Place) -> Result<IpAddr, Box<Problem>> {
        let Place { host, port } = place;
        egress::check(&self.listed, &self.permitted, host, *port)
            .map_err(|error| refusal(&error))?;
        let addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let resolving = self.network.resolve(name);
                let resolved = timeout(REACH_TIMEOUT, resolving).await;
                resolved
                    .map_err(|_| unreachable(place, "resolved", &took_too_long()))?
                    .map_err(|error| unreachable(place, "resolved", &chain(&error)))?
            }
        };
        let chosen = egress::choose(host, &addresses).map_err(|error| refusal(&error))?;
        chosen.ok_or_else(|| unreachable(place, "resolved", "the name has no address"))
    }

    /// Notes a refused connection; a failed connection is not a refusal.
    async fn refused(&self, host: &str, port: Option<u16>, problem: &Problem) {
        if problem.code == ErrorCode::EgressRefused.as_str() {
            lock(&self.used).refused += 1;
            self.notes.egress_refused(host, port, problem).await;
        }
    }

    /// Closes all connections; returns the usage once they are closed, or none if egress was never listed nor used.
    pub(crate) async fn close(&self) -> Option<EgressUsage> {
        self.closed.cancel();
        // Infallible: `self` owns the sender.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
        let used = *lock(&self.used);
        let is_of_interest = !self.listed.is_empty() || used != EgressUsage::default();
        is_of_interest.then_some(used)
    }
}

impl Reached {
    /// Carries bytes until one side, the limit or the run ends the connection, then counts and notes it. `inside` is
    /// none if the capsule has already closed its side.
    async fn carry(self, inside: Option<impl AsyncRead + AsyncWrite>) {
        let moved = Moved::default();
        if let Some(inside) = inside {
            let carrying = moved.carry(inside, self.outside, IDLE_MAX);
            self.egress.closed.run_until_cancelled(carrying).await;
        }
        let connected = Connected {
            host: self.place.host.to_string(),
            port: self.place.port,
            address: self.address,
            bytes_sent: moved.sent(),
            bytes_received: moved.received(),
            lasted: self.began.elapsed(),
        };
        {
            let mut used = lock(&self.egress.used);
            used.connections = used.connections.saturating_add(1);
            used.bytes_sent += connected.bytes_sent;
            used.bytes_received += connected.bytes_received;
        }
        // The connection is counted: `close` need not wait for the note.
        drop(self.open);
        self.reporter.report(connected).await;
    }
}

fn refusal(error: &egress::Refusal) -> Box<Problem> {
    Box::new(Problem::new(ErrorCode::EgressRefused, error.to_string()))
}

fn unreachable(place: &Place, what: &str, reason: &str) -> Box<Problem> {
    let text = format!("{}:{} cannot be {what}: {reason}", place.host, place.port);
    Box::new(Problem::new(ErrorCode::EgressUnreachable, text))
}

fn took_too_long() -> String {
    format!("no result within {} s", REACH_TIMEOUT.as_secs())
}
