//! Compares the containers of this node with the log, and removes containers without a holder.

use std::collections::BTreeSet;
use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::node::{Action, ObservedContainer, plan};
use aod_domain::run::{Command, Holder, Run, RunError};
use tracing::{debug, info, warn};

use crate::shared::Shared;
use aod_services::error::chain;

/// How often the node compares containers with the log.
const RECONCILE_EVERY: Duration = Duration::from_secs(30);

/// Reconciles at intervals, forever.
pub(super) async fn reconcile_for_ever(shared: &Shared) {
    loop {
        tokio::time::sleep(RECONCILE_EVERY).await;
        reconcile(shared).await;
    }
}

/// Removes the containers of this node whose attempts have ended or were taken over.
async fn reconcile(shared: &Shared) {
    let observed = match shared.ports.runtime.list().await {
        Ok(observed) => observed,
        Err(error) => {
            warn!(error = %chain(&error), "the node cannot list the containers of this host");
            return;
        }
    };
    // Read after the list: the list does not contain attempts that began in between.
    let mine = shared.attempts.all();
    let runs = load(shared, &observed, &mine).await;
    let held = runs.iter().flatten().filter_map(held).collect();
    let unknown: BTreeSet<RunId> = observed
        .iter()
        .zip(&runs)
        .filter(|(_, run)| run.is_none())
        .map(|(container, _)| container.run)
        .collect();
    for Action::Remove { name } in plan(&observed, &held, &mine) {
        // If the log does not answer, the next reconciliation decides.
        let mut named = observed.iter().filter(|container| container.name == name);
        if named.any(|container| unknown.contains(&container.run)) {
            continue;
        }
        info!(name, "the node removes a container without a holder");
        if let Err(error) = shared.ports.runtime.remove(&name).await {
            warn!(name, error = %chain(&error), "a container was not removed");
        }
    }
}

/// The runs of `observed` in the log; none if the log does not answer, or if the attempt is in `mine`.
async fn load(
    shared: &Shared,
    observed: &[ObservedContainer],
    mine: &BTreeSet<(RunId, u32)>,
) -> Vec<Option<Run>> {
    let mut runs = Vec::with_capacity(observed.len());
    for container in observed {
        let is_mine = mine.contains(&(container.run, container.attempt));
        runs.push(if is_mine {
            None
        } else {
            shared.runs.load(container.run).await.unwrap_or(None)
        });
    }
    runs
}

fn held(run: &Run) -> Option<(RunId, u32)> {
    run.lease().map(|lease| (run.id, lease.event.attempt))
}

/// The run of `container`, if this node holds it by the attempt of the container.
async fn held_before(shared: &Shared, container: &ObservedContainer) -> Option<Run> {
    let run = shared.runs.load(container.run).await.ok()??;
    let lease = &run.lease()?.event;
    let is_ours = matches!(&lease.holder, Holder::Node { node, .. } if *node == shared.id);
    (is_ours && lease.attempt == container.attempt).then_some(run)
}

/// At the start: removes the containers of an earlier incarnation of this node and stores their attempts as lost, so
/// that other nodes can take over immediately.
pub(crate) async fn recover(shared: &Shared) {
    let observed = match shared.ports.runtime.list().await {
        Ok(observed) => observed,
        Err(error) => {
            warn!(error = %chain(&error), "the node cannot list the containers of an earlier start");
            return;
        }
    };
    for container in observed {
        let Some(run) = held_before(shared, &container).await else {
            continue;
        };
        // Another attempt may start only after the removal.
        if let Err(error) = shared.ports.runtime.remove(&container.name).await {
            warn!(name = container.name, error = %chain(&error), "a container of an earlier start was not removed");
            continue;
        }
        let error = RunError::new(ErrorCode::NodeLost, "the node restarted");
        let command = Command::LoseAttempt {
            attempt: container.attempt,
            error,
        };
        let handled = shared.runs.handle(container.run, &command, Some(run));
        match handled.await {
            // The launch is not returned: after its lease another node may hold it, and a return would make that node
            // look dead.
            Ok(_) => debug!(run = %container.run, "earlier attempt stored as lost"),
            Err(error) => {
                debug!(run = %container.run, error = %chain(&error), "earlier attempt not stored as lost");
            }
        }
    }
    reconcile(shared).await;
}
