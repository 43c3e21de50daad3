//! `aod gateway` and `aod node`: run until a signal.

use crate::arguments::{GatewayArguments, NodeArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::signals::Signals;
use crate::service::{gateway, node};

/// A gateway stops at the first signal, after its open answers.
pub(super) async fn gateway(arguments: &GatewayArguments) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let (gateway, _traces) = tokio::select! {
        started = gateway::start(arguments) => started?,
        () = signals.next() => return Ok(Exit::Ok),
    };
    signals.next().await;
    tracing::info!("the gateway stops");
    gateway.shutdown().await;
    Ok(Exit::Ok)
}

/// A node drains at the first signal, and stops after its last run or at the second signal.
pub(super) async fn node(arguments: &NodeArguments) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let node = tokio::select! {
        started = node::start(arguments) => started?,
        () = signals.next() => return Ok(Exit::Ok),
    };
    signals.next().await;
    tracing::info!(
        "the node takes no new runs and stops after its last run; another signal stops it immediately"
    );
    tokio::select! {
        () = node.drain() => tracing::info!("the node has no more runs and stops"),
        () = signals.next() => tracing::info!("the node stops; other nodes take over its runs"),
    }
    node.stop().await;
    Ok(Exit::Ok)
}
