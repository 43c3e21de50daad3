//! A rerun: a recorded request asked for again, as a tree of its own, which takes over what is recorded
//! and need not be done again.
//!
//! Which callee of the recorded run a call repeats, its key says; where the caller is another than then, its
//! target, arguments and files do. Nothing of the recorded tree is changed.

use std::collections::BTreeMap;

use crate::capsule::Registration;
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::RunId;
use crate::manifest::CapsuleName;
use crate::run::{Anew, Ended, Launched, Outcome, Rerun, Reuses, Run, Timings, Usage, Work};

/// What becomes of a call in a rerun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// It is answered with a recorded result.
    Reused(Reuses),
    /// It is started.
    Started(Rerun),
}

/// What a run that is to be repeated is asked for with: all of it `anew`, or what is unchanged taken over.
pub fn begin(of: &Run, anew: Anew) -> Rerun {
    Rerun {
        tree: of.id,
        of: Some(origin(of)),
        anew,
    }
}

/// What becomes of a call with `signature` in a run that repeats by `rerun`; `recorded` is what the same
/// call came to there, if it was made. Only successes are taken over: whoever asks again after a failure
/// wants it tried again.
pub fn callee(rerun: &Rerun, recorded: Option<&Run>, signature: Digest) -> Callee {
    let started = |anew| {
        Callee::Started(Rerun {
            tree: rerun.tree,
            of: recorded.map(origin),
            anew,
        })
    };
    let Some(recorded) = recorded else {
        return started(rerun.anew.clone());
    };
    match &rerun.anew {
        Anew::All => return started(Anew::All),
        Anew::Way(way) if way.last() == Some(&recorded.id) => return started(Anew::All),
        Anew::Way(way) if way.contains(&recorded.id) => return started(Anew::Way(way.clone())),
        Anew::Way(_) | Anew::Nothing => (),
    }
    let is_unchanged = recorded.launched.event.lineage.signatures.last() == Some(&signature);
    match recorded.ended() {
        Some(ended) if is_unchanged && ended.event.outcome == Outcome::Succeeded => {
            let own = Reuses {
                run: recorded.id,
                hash: ended.hash,
            };
            // Of a rerun: what it had taken over itself.
            Callee::Reused(recorded.launched.event.reuses.unwrap_or(own))
        }
        _ => started(Anew::Nothing),
    }
}

/// What becomes of a call whose recorded result cannot be taken over, because it was collected: it is started, and
/// takes over what is left below it.
pub fn again(rerun: &Rerun, recorded: &Run) -> Rerun {
    Rerun {
        tree: rerun.tree,
        of: Some(origin(recorded)),
        anew: Anew::Nothing,
    }
}

/// The run that did what `run` answers with: itself, unless it has taken a result over.
fn origin(run: &Run) -> RunId {
    run.launched
        .event
        .reuses
        .map_or(run.id, |reuses| reuses.run)
}

/// The end of a run in its `attempt` that takes over what `recorded` came to. What was used then is not
/// used again.
pub fn taken_over(attempt: u32, recorded: &Ended) -> Ended {
    Ended {
        attempt,
        outcome: recorded.outcome,
        output: recorded.output.clone(),
        files: recorded.files.clone(),
        error: recorded.error.clone(),
        exit: recorded.exit,
        children: Vec::new(),
        children_summary: None,
        notes: None,
        logs: recorded.logs.clone(),
        timings: Timings::default(),
        usage: Usage::default(),
    }
}

/// What a recorded tree used and called.
#[derive(Clone, Debug)]
pub struct RecordedTree {
    /// Each capsule as the first run of it that succeeded had it, else the first.
    pub capsules: BTreeMap<CapsuleName, Recorded<Registration>>,
    /// By target, arguments and files the first run that succeeded, else the first.
    pub calls: BTreeMap<Digest, RunId>,
    /// The tree that it is itself a rerun of.
    pub repeats: Option<RunId>,
}

impl RecordedTree {
    /// Of the `runs` of the tree that `id` is in.
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

/// The capsule as it was when `launched` was stored; none of a build.
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
        image,
        resources: launched.event.resources.clone(),
        handoffs,
        models: models.map(|models| *models),
        needs,
        label: placement.label.clone(),
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

    fn nothing_anew() -> Rerun {
        Rerun {
            tree: root(),
            of: Some(root()),
            anew: Anew::Nothing,
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

    fn started(rerun: &Rerun, recorded: Option<&Run>) -> Option<Anew> {
        match callee(rerun, recorded, Digest::of(SIGNATURE)) {
            Callee::Started(rerun) => Some(rerun.anew),
            Callee::Reused(_) => None,
        }
    }

    #[test]
    fn an_unchanged_success_is_taken_over_and_nothing_else() {
        let success = recorded(ended(1));
        let expected = Reuses {
            run: child(),
            hash: success.ended().unwrap().hash,
        };
        let rerun = nothing_anew();
        assert_eq!(
            callee(&rerun, Some(&success), Digest::of(SIGNATURE)),
            Callee::Reused(expected)
        );
        let changed = callee(&rerun, Some(&success), Digest::of("other arguments"));
        assert!(matches!(changed, Callee::Started(Rerun { of: Some(of), .. }) if of == child()));
        assert_eq!(started(&rerun, None), Some(Anew::Nothing));
        for outcome in [Outcome::Failed, Outcome::TimedOut, Outcome::Cancelled] {
            let error = error(ErrorCode::CapsuleExit);
            let failure = recorded(Ended::without_start(1, outcome, error));
            assert_eq!(started(&rerun, Some(&failure)), Some(Anew::Nothing));
        }
    }

    #[test]
    fn the_way_to_a_run_that_run_and_all_below_it_are_started() {
        let success = recorded(ended(1));
        let below = child().child(&Digest::of("below"));
        let with = |anew| Rerun {
            anew,
            ..nothing_anew()
        };
        let further = Anew::Way(vec![root(), child(), below]);
        assert_eq!(
            started(&with(further.clone()), Some(&success)),
            Some(further)
        );
        let up_to_here = with(Anew::Way(vec![root(), child()]));
        assert_eq!(started(&up_to_here, Some(&success)), Some(Anew::All));
        assert_eq!(started(&with(Anew::All), Some(&success)), Some(Anew::All));
        let elsewhere = with(Anew::Way(vec![root(), root().child(&Digest::of("other"))]));
        assert_eq!(started(&elsewhere, Some(&success)), None);
    }

    /// The tree may have met two versions of a capsule, and tried a call twice.
    #[test]
    fn a_success_says_which_image_and_result_are_recorded() {
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
    fn what_was_taken_over_before_is_taken_over_from_where_it_was_made() {
        let origin = Reuses {
            run: root().child(&Digest::of("first")),
            hash: Digest::of("its result"),
        };
        let mut success = recorded(ended(1));
        success.launched.event.reuses = Some(origin);
        let again = callee(&nothing_anew(), Some(&success), Digest::of(SIGNATURE));
        assert_eq!(again, Callee::Reused(origin));
        assert_eq!(begin(&success, Anew::All).of, Some(origin.run));
    }
}
