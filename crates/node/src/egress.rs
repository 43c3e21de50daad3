//! The way out of a capsule: HTTP CONNECT on its channel, to hosts that its list and the operator allow.
//!
//! ```text
//! name in both lists → addresses of the name → the first public one → connection to that very one
//! ```
//!
//! Nothing is looked up twice, so that a name which answers otherwise the second time wins nothing.

mod proxy;
mod system;
#[cfg(test)]
mod tests;
mod tunnel;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_api::problem::Problem;
use aod_domain::egress::{self, Host, Permission, Rule};
use aod_domain::error_code::ErrorCode;
use aod_domain::run::EgressUsage;
use aod_ports::network::{Connection, Network};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use self::proxy::{Slot, answer, target};
pub use self::system::SystemNetwork;
use self::tunnel::{IDLE_MAX, Moved};
use crate::calls::chain;
use crate::notes::{Connected, EgressNotes, Told};

/// How long a name, and then a connection, may take. Source: what common proxies wait.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);

/// The way out of one attempt.
#[derive(Debug)]
pub(crate) struct Egress {
    listed: Vec<Rule>,
    permitted: Vec<Permission>,
    network: Arc<dyn Network>,
    notes: EgressNotes,
    used: Mutex<EgressUsage>,
    /// Connections that go on.
    open: watch::Sender<usize>,
    closed: CancellationToken,
}

/// A connection with a host outside, made and not yet used.
pub(crate) struct Reached {
    egress: Arc<Egress>,
    place: Place,
    outside: Box<dyn Connection>,
    address: IpAddr,
    began: Instant,
    open: Open,
    told: Told,
}

/// A connection that goes on.
struct Open(watch::Sender<usize>);

impl Open {
    fn new(open: &watch::Sender<usize>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(open.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// Whom a capsule asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl Egress {
    pub(crate) fn new(
        listed: Vec<Rule>,
        permitted: Vec<Permission>,
        network: Arc<dyn Network>,
        notes: EgressNotes,
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

    /// Connects to `place`, if it may be reached; a refusal is told.
    async fn reach(self: &Arc<Self>, place: Place) -> Result<Reached, Box<Problem>> {
        if self.closed.is_cancelled() {
            let text = "the run is ending and connects to nobody any more";
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
            open: Open::new(&self.open),
            told: self.notes.begin(),
        })
    }

    /// The address to connect to.
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
        chosen.ok_or_else(|| unreachable(place, "resolved", "it has no address"))
    }

    /// Takes note of a connection that was refused; what only failed is no refusal.
    async fn refused(&self, host: &str, port: Option<u16>, problem: &Problem) {
        if problem.code == ErrorCode::EgressRefused.as_str() {
            self.used().refused += 1;
            self.notes.refused(host, port, problem).await;
        }
    }

    /// Ends all connections, and returns once they have; answers what was used, if anything may be.
    pub(crate) async fn close(&self) -> Option<EgressUsage> {
        self.closed.cancel();
        // The sender is this one's own: it cannot be gone.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
        let used = *self.used();
        let is_of_interest = !self.listed.is_empty() || used != EgressUsage::default();
        is_of_interest.then_some(used)
    }

    fn used(&self) -> MutexGuard<'_, EgressUsage> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reached {
    /// Carries bytes until one side, the limit or the run ends it; then it is counted and told. Nobody
    /// is `inside` if the capsule has gone meanwhile.
    async fn carry(self, inside: Option<impl AsyncRead + AsyncWrite>) {
        let Self {
            egress,
            place,
            outside,
            address,
            began,
            open,
            told,
        } = self;
        let moved = Moved::default();
        if let Some(inside) = inside {
            let carrying = moved.carry(inside, outside, IDLE_MAX);
            egress.closed.run_until_cancelled(carrying).await;
        }
        let connected = Connected {
            host: place.host.to_string(),
            port: place.port,
            address,
            bytes_sent: moved.sent(),
            bytes_received: moved.received(),
            lasted: began.elapsed(),
        };
        {
            let mut used = egress.used();
            used.connections = used.connections.saturating_add(1);
            used.bytes_sent += connected.bytes_sent;
            used.bytes_received += connected.bytes_received;
        }
        // Counted, so nobody has to wait for the note.
        drop(open);
        told.tell(connected).await;
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
    format!("it took longer than {} s", REACH_TIMEOUT.as_secs())
}
