//! `--open-to-agent-on-demand`: clients of agent-on-demand on this host need no token.

use crate::arguments::UpArguments;
use crate::failure::Failure;
use crate::service::gateway::LOOPBACK_HINT;

/// Rejects the option on an address that other hosts can reach.
pub(crate) fn check(arguments: &UpArguments) -> Result<(), Failure> {
    if !arguments.open_to_agent_on_demand || arguments.listen.ip().is_loopback() {
        return Ok(());
    }
    let text = format!(
        "other hosts can reach {}: --open-to-agent-on-demand lets clients start runs without a token",
        arguments.listen
    );
    Err(Failure::usage(text).with_hint(LOOPBACK_HINT))
}

/// The warning about an open gateway at `url`.
pub(crate) fn warning(arguments: &UpArguments, url: &str) -> Option<String> {
    arguments.open_to_agent_on_demand.then(|| {
        format!(
            "warning: open to agent-on-demand: every program on this host can start runs of the tenant default at {url} \
             and read their outputs, without a token"
        )
    })
}
