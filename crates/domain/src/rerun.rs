//! A rerun: a new tree for a recorded request, which reuses recorded results.
//!
//! The key of a call identifies the recorded callee that the call repeats. If the caller differs from the recorded one,
//! target, arguments and files identify the callee. A rerun changes nothing in the recorded tree.

use std::collections::BTreeMap;

use crate::capsule::Registration;
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::RunId;
use crate::manifest::CapsuleName;
use crate::run::{Ended, Launched, Outcome, Recompute, Rerun, Reuses, Run, Timings, Usage, Work};

/// How a rerun handles a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// The call returns a recorded result.
    Reused(Reuses),
    /// The call starts a run.
    Started(Rerun),
}

/// The first `rerun` of a repeated run: which runs are recomputed, and whose recorded results are reused.
pub fn begin(of: &Run, recompute: Recompute) -> Rerun {
    Rerun {
        tree: of.id,
        of: Some(origin(of)),
        recompute,
    }
}

/// How a run that repeats by `rerun` handles a call with `signature`; `recorded` is the same call in the recorded tree.
/// Only successes are reused: a rerun retries failures.
pub fn callee(rerun: &Rerun, recorded: Option<&Run>, signature: Digest) -> Callee {
    let started = |recompute| {
        Callee::Started(Rerun {
            tree: rerun.tree,
            of: recorded.map(origin),
            recompute,
        })
    };
    let Some(recorded) = recorded else {
        return started(rerun.recompute.clone());
    };
    match &rerun.recompute {
        Recompute::All => return started(Recompute::All),
        Recompute::Way(way) if way.last() == Some(&recorded.id) => return started(Recompute::All),
        Recompute::Way(way) if way.contains(&recorded.id) => {
            return started(Recompute::Way(way.clone()));
        }
        Recompute::Way(_) | Recompute::Nothing => (),
    }
    let is_unchanged = recorded.launched.event.lineage.signatures.last() == Some(&signature);
    match recorded.ended() {
        Some(ended) if is_unchanged && ended.event.outcome == Outcome::Succeeded => {
            let own = Reuses {
                run: recorded.id,
                hash: ended.hash,
            };
            // A rerun of a rerun: the result that it reused itself.
            Callee::Reused(recorded.launched.event.reuses.unwrap_or(own))
        }
        _ => started(Recompute::Nothing),
    }
}

/// The rerun of a call whose recorded result was deleted: the callee starts, and reuses the results that are left below
/// it.
pub fn again(rerun: &Rerun, recorded: &Run) -> Rerun {
    Rerun {
        tree: rerun.tree,
        of: Some(origin(recorded)),
        recompute: Recompute::Nothing,
    }
}

/// The run that produced the result of `run`: `run` itself, unless `run` reused a result.
fn origin(run: &Run) -> RunId {
    run.launched
        .event
        .reuses
        .map_or(run.id, |reuses| reuses.run)
}

/// The end of `attempt` of a run that reuses the result `recorded`. Its past usage does not count again.
pub fn taken_over(attempt: u32, recorded: &Ended) -> Ended {
    Ended {
        attempt,
        children: Vec::new(),
        children_summary: None,
        notes: None,
        timings: Timings::default(),
        usage: Usage::default(),
        ..recorded.clone()
    }
}

/// The capsules and calls of a recorded tree.
#[derive(Clone, Debug)]
pub struct RecordedTree {
    /// For each capsule, its version in the first run that succeeded, else in the first run.
    pub capsules: BTreeMap<CapsuleName, Recorded<Registration>>,
    /// By target, arguments and files: the first run that succeeded, else the first run.
    pub calls: BTreeMap<Digest, RunId>,
    /// The tree that this tree is a rerun of.
    pub repeats: Option<RunId>,
}

impl RecordedTree {
    /// From the `runs` of the tree of `id`.
    pub fn of<'a>(id: RunId, runs: impl IntoIterator<Item = &'a Run>) -> Self {
        let mut runs: Vec<&Run> = runs.into_iter().collect();
        runs.sort_by_key(|run| (!has_succeeded(run), run.launched.sequence));
        let (mut capsules, mut calls) = (BTreeMap::new(), BTreeMap::new());
        for run in &runs {
            if let Some(signature) = run.launched.event.lineage.signatures.last() {
                calls.entry(*signature).or_insert(run.id);
            }
            if let Some(registered) = registration(&run.launched) {
                let name = registered.event.name.clone();
                capsules.entry(name).or_insert(registered);
            }
        }
        let own = runs.iter().find(|run| run.id == id);
        let rerun = own.and_then(|run| run.launched.event.rerun.as_ref());
        Self {
            capsules,
            calls,
            repeats: rerun.map(|rerun| rerun.tree),
        }
    }
}

fn has_succeeded(run: &Run) -> bool {
    run.ended()
        .is_some_and(|ended| ended.event.outcome == Outcome::Succeeded)
}

/// The capsule as of `launched`; none for a build.
pub fn registration(launched: &Recorded<Launched>) -> Option<Recorded<Registration>> {
    let Launched {
        work, placement, ..
    } = &launched.event;
    let Work::Capsule {
        name,
        content,
        image,
        schema,
        handoffs,
        models,
        needs,
        workflow,
    } = work.clone()
    else {
        return None;
    };
    let registration = Registration {
        name,
        title: None,
        description: None,
        aliases: Vec::new(),
        content,
        schema,
        agent: None,
        tools: None,
        workflow,
        image,
        bases: Vec::new(),
        resources: launched.event.resources.clone(),
        handoffs,
        models: models.map(|models| *models),
        needs,
        pool: placement.pool.clone(),
        registered_by: launched.event.requested_by.clone(),
    };
    Some(launched.clone().map(|_| registration))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_code::ErrorCode;
    use crate::run::fixtures::{child, ended, error, launched_child, node_holder, root, run_of};
    use crate::run::{Event, Lease};

    const SIGNATURE: &str = "signature";

    fn recompute_nothing() -> Rerun {
        Rerun {
            tree: root(),
            of: Some(root()),
            recompute: Recompute::Nothing,
        }
    }

    fn recorded(ended: Ended) -> Run {
        let lease = Event::Leased(Lease {
            attempt: 1,
            holder: node_holder(1, 1),
        });
        let launch = Event::Launched(Box::new(launched_child()));
        Run {
            id: child(),
            ..run_of([launch, lease, Event::Ended(Box::new(ended))])
        }
    }

    fn started(rerun: &Rerun, recorded: Option<&Run>) -> Option<Recompute> {
        match callee(rerun, recorded, Digest::of(SIGNATURE)) {
            Callee::Started(rerun) => Some(rerun.recompute),
            Callee::Reused(_) => None,
        }
    }

    #[test]
    fn only_an_unchanged_success_is_reused() {
        let success = recorded(ended(1));
        let expected = Reuses {
            run: child(),
            hash: success.ended().unwrap().hash,
        };
        let rerun = recompute_nothing();
        assert_eq!(
            callee(&rerun, Some(&success), Digest::of(SIGNATURE)),
            Callee::Reused(expected)
        );
        let changed = callee(&rerun, Some(&success), Digest::of("other arguments"));
        assert!(matches!(changed, Callee::Started(Rerun { of: Some(of), .. }) if of == child()));
        assert_eq!(started(&rerun, None), Some(Recompute::Nothing));
        for outcome in [Outcome::Failed, Outcome::TimedOut, Outcome::Cancelled] {
            let error = error(ErrorCode::CapsuleExit);
            let failure = recorded(Ended::without_start(1, outcome, error));
            assert_eq!(started(&rerun, Some(&failure)), Some(Recompute::Nothing));
        }
    }

    #[test]
    fn path_to_a_run_and_all_runs_below_it_are_started() {
        let success = recorded(ended(1));
        let below = child().child(&Digest::of("below"));
        let with = |recompute| Rerun {
            recompute,
            ..recompute_nothing()
        };
        let further = Recompute::Way(vec![root(), child(), below]);
        assert_eq!(
            started(&with(further.clone()), Some(&success)),
            Some(further)
        );
        let up_to_here = with(Recompute::Way(vec![root(), child()]));
        assert_eq!(started(&up_to_here, Some(&success)), Some(Recompute::All));
        assert_eq!(
            started(&with(Recompute::All), Some(&success)),
            Some(Recompute::All)
        );
        let elsewhere = with(Recompute::Way(vec![
            root(),
            root().child(&Digest::of("other")),
        ]));
        assert_eq!(started(&elsewhere, Some(&success)), None);
    }

    /// The tree may contain two versions of a capsule, and a repeated call.
    #[test]
    fn recorded_image_and_result_come_from_a_success() {
        let mut failed = recorded(Ended::without_start(
            1,
            Outcome::Failed,
            error(ErrorCode::CapsuleExit),
        ));
        failed.id = root().child(&Digest::of("an earlier try"));
        let mut success = recorded(ended(1));
        success.launched.sequence += 10;
        if let Work::Capsule { content, .. } = &mut success.launched.event.work {
            *content = Digest::of("a later version");
        }
        let tree = RecordedTree::of(root(), [&failed, &success]);
        assert_eq!(tree.calls[&Digest::of(SIGNATURE)], child());
        let capsule = tree.capsules.values().next().unwrap();
        assert_eq!(capsule.event.content, Digest::of("a later version"));
        let failed = RecordedTree::of(root(), [&failed]);
        assert_ne!(failed.calls[&Digest::of(SIGNATURE)], child());
    }

    #[test]
    fn reused_result_is_reused_from_its_origin() {
        let origin = Reuses {
            run: root().child(&Digest::of("first")),
            hash: Digest::of("its result"),
        };
        let mut success = recorded(ended(1));
        success.launched.event.reuses = Some(origin);
        let again = callee(&recompute_nothing(), Some(&success), Digest::of(SIGNATURE));
        assert_eq!(again, Callee::Reused(origin));
        assert_eq!(begin(&success, Recompute::All).of, Some(origin.run));
    }
}
