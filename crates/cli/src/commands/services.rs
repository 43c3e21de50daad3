//! `aod gateway` and `aod node`: run until a signal.

use crate::arguments::{GatewayArguments, NodeArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::signals::Signals;
use crate::service::{gateway, node};

/// A gateway ends with the first signal; open answers may finish.
pub(super) async fn gateway(arguments: &GatewayArguments) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let (gateway, _traces) = tokio::select! {
        started = gateway::start(arguments) => started?,
        () = signals.next() => return Ok(Exit::Ok),
    };
    signals.next().await;
    tracing::info!("the gateway ends");
    gateway.shutdown().await;
    Ok(Exit::Ok)
}

/// A node takes no more work after the first signal and ends with its last run, or with the second
/// signal.
pub(super) async fn node(arguments: &NodeArguments) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let node = tokio::select! {
        started = node::start(arguments) => started?,
        () = signals.next() => return Ok(Exit::Ok),
    };
    signals.next().await;
    tracing::info!(
        "the node takes no more work and ends with its last run; another signal ends it at once"
    );
    tokio::select! {
        () = node.drain() => tracing::info!("the node has no more work and ends"),
        () = signals.next() => tracing::info!("the node ends; what it ran is taken over by others"),
    }
    node.stop().await;
    Ok(Exit::Ok)
}
