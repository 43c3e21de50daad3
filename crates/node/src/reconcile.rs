//! Compares the containers of this engine with the log, and clears away what nobody holds.

use std::collections::BTreeSet;

use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::node::{Action, ObservedContainer, plan};
use aod_domain::run::{Command, Holder, Run, RunError};
use tracing::{debug, info, warn};

use crate::calls::chain;
use crate::shared::Shared;

/// Clears away the containers of attempts that have ended or were taken over, whichever node of
/// this engine had started them.
pub(crate) async fn reconcile(shared: &Shared) {
    let observed = match shared.ports.runtime.list().await {
        Ok(observed) => observed,
        Err(error) => {
            warn!(error = %chain(&error), "the containers of this host cannot be listed");
            return;
        }
    };
    // Read after the list: an attempt that began in between is not on it.
    let mine = shared.mine();
    let runs = load(shared, &observed, &mine).await;
    let held = runs.iter().flatten().filter_map(held).collect();
    let unknown: BTreeSet<RunId> = observed
        .iter()
        .zip(&runs)
        .filter(|(_, run)| run.is_none())
        .map(|(container, _)| container.run)
        .collect();
    for Action::Remove { name } in plan(&observed, &held, &mine) {
        let run = observed
            .iter()
            .find(|container| container.name == name)
            .map(|container| container.run);
        // What the log does not tell now is left for the next time.
        if run.is_some_and(|run| unknown.contains(&run)) {
            continue;
        }
        info!(name, "removing a container that no attempt holds");
        if let Err(error) = shared.ports.runtime.remove(&name).await {
            warn!(name, error = %chain(&error), "a container was not removed");
        }
    }
}

/// The runs of `observed` as the log has them; nothing where it does not answer. Runs of attempts
/// in `mine` are not asked for.
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

/// At the start: gives up what an earlier incarnation of this node held, so that others can take
/// over at once, and removes its containers.
pub(crate) async fn recover(shared: &Shared) {
    let observed = match shared.ports.runtime.list().await {
        Ok(observed) => observed,
        Err(error) => {
            warn!(error = %chain(&error), "the containers of an earlier start cannot be listed");
            return;
        }
    };
    for container in observed {
        let Ok(Some(run)) = shared.runs.load(container.run).await else {
            continue;
        };
        let Some(lease) = run
            .lease()
            .filter(|lease| lease.event.attempt == container.attempt)
        else {
            continue;
        };
        let Holder::Node { node, .. } = &lease.event.holder else {
            continue;
        };
        if *node != shared.id {
            continue;
        }
        // First it is gone, then another may start.
        if let Err(error) = shared.ports.runtime.remove(&container.name).await {
            warn!(name = container.name, error = %chain(&error), "a container of an earlier start was not removed");
            continue;
        }
        let error = RunError::new(ErrorCode::NodeLost, "the node was started again");
        let command = Command::LoseAttempt {
            attempt: container.attempt,
            error,
        };
        match shared
            .runs
            .handle(container.run, &command, Some(run.clone()))
            .await
        {
            // The launch is not given back: its lease may be over, another may have it already, and
            // would then be taken for dead.
            Ok(_) => debug!(run = %container.run, "an attempt of an earlier start is given up"),
            Err(error) => {
                debug!(run = %container.run, error = %chain(&error), "an earlier attempt stays as it is");
            }
        }
    }
    reconcile(shared).await;
}
