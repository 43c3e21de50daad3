//! State events: each run follows its rules and its chain, and the runs of a tree name one another.

use std::collections::{BTreeMap, BTreeSet};

use super::shown;
use crate::audit::{Finding, FindingKind};
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::RunId;
use crate::run::{ChildResult, ChildrenSummary, Ended, Event, NotesSummary, Parent, Position, Run};

/// What a result commits to.
#[derive(Debug)]
pub(super) struct End {
    pub(super) place: String,
    sequence: u64,
    hash: Digest,
    pub(super) attempt: u32,
    children: Vec<ChildResult>,
    summary: Option<ChildrenSummary>,
    pub(super) notes: Option<NotesSummary>,
}

impl End {
    fn new(place: &str, recorded: &Recorded<Event>, ended: &Ended) -> Self {
        Self {
            place: place.to_owned(),
            sequence: recorded.sequence,
            hash: recorded.hash,
            attempt: ended.attempt,
            children: ended.children.clone(),
            summary: ended.children_summary,
            notes: ended.notes.clone(),
        }
    }
}

/// One run.
#[derive(Debug, Default)]
struct History {
    /// None before its launch.
    run: Option<Run>,
    hashes: BTreeSet<Digest>,
    end: Option<End>,
}

/// A call, as its launch tells it.
#[derive(Debug)]
struct Called {
    place: String,
    run: RunId,
    parent: Parent,
}

#[derive(Debug, Default)]
pub(super) struct Histories {
    runs: BTreeMap<RunId, History>,
    calls: Vec<Called>,
}

impl Histories {
    pub(super) fn count(&self) -> u64 {
        self.runs.len() as u64
    }

    /// The hash of the result of `run`.
    pub(super) fn end_of(&self, run: RunId) -> Option<Digest> {
        Some(self.runs.get(&run)?.end.as_ref()?.hash)
    }

    pub(super) fn ends(&self) -> impl Iterator<Item = (RunId, &End)> {
        let ends = self.runs.iter();
        ends.filter_map(|(run, history)| Some((*run, history.end.as_ref()?)))
    }

    pub(super) fn take(
        &mut self,
        id: RunId,
        place: &str,
        recorded: Recorded<Event>,
    ) -> Vec<Finding> {
        let history = self.runs.entry(id).or_default();
        history.hashes.insert(recorded.hash);
        match &recorded.event {
            Event::Ended(ended) => history.end = Some(End::new(place, &recorded, ended)),
            Event::Launched(launched) | Event::Requested(launched) | Event::Reused(launched) => {
                self.calls
                    .extend(launched.parent.clone().map(|parent| Called {
                        place: place.to_owned(),
                        run: id,
                        parent,
                    }));
            }
            _ => (),
        }
        match history.run.take() {
            None => begin(history, id, place, recorded),
            Some(run) => go_on(history, run, place, recorded),
        }
    }

    /// What can be said only of all of them.
    pub(super) fn finish(&self, root: RunId) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.runs.contains_key(&root) {
            findings.push(Finding {
                kind: FindingKind::MissingEvent,
                place: "events".into(),
                found: format!("no event of {root}"),
                expected: "those of the root".into(),
            });
        }
        findings.extend(self.calls.iter().filter_map(|called| self.called(called)));
        for (run, end) in self.ends() {
            let children = end.children.iter();
            findings.extend(children.filter_map(|child| self.listed(end, child)));
            let summary = end.summary.as_ref();
            findings.extend(summary.and_then(|summary| self.summed(run, end, summary)));
        }
        findings
    }

    /// A call was decided on an event of its caller, and its id follows from caller and key.
    fn called(&self, called: &Called) -> Option<Finding> {
        let Called { place, run, parent } = called;
        if parent.run.child(&parent.call_key) != *run {
            return Some(Finding {
                kind: FindingKind::Event,
                place: place.clone(),
                found: format!("{run} as the call {} of {}", parent.call_key, parent.run),
                expected: parent.run.child(&parent.call_key).to_string(),
            });
        }
        let caller = self.runs.get(&parent.run);
        let is_known = caller.is_some_and(|caller| caller.hashes.contains(&parent.event));
        (!is_known).then(|| Finding {
            kind: FindingKind::MissingEvent,
            place: place.clone(),
            found: format!("no event {} of its caller {}", parent.event, parent.run),
            expected: "the event that it names".into(),
        })
    }

    /// The result of a callee is the one that its caller's names.
    fn listed(&self, end: &End, child: &ChildResult) -> Option<Finding> {
        let found = self.end_of(child.run);
        (found != Some(child.hash)).then(|| Finding {
            kind: match found {
                None => FindingKind::MissingEvent,
                Some(_) => FindingKind::Chain,
            },
            place: end.place.clone(),
            found: format!("{} as the result of its callee {}", shown(found), child.run),
            expected: child.hash.to_string(),
        })
    }

    /// As [`Self::listed`], where a caller has too many callees to list them. If there are more than it counted,
    /// as when one was launched whose caller never heard of it, nothing tells which it counted.
    fn summed(&self, run: RunId, end: &End, summary: &ChildrenSummary) -> Option<Finding> {
        let callees = self.calls.iter().filter(|called| called.parent.run == run);
        let results: BTreeMap<RunId, Digest> = callees
            .filter_map(|called| {
                let result = self.runs.get(&called.run)?.end.as_ref()?;
                (result.sequence < end.sequence).then_some((called.run, result.hash))
            })
            .collect();
        let found = ChildrenSummary::of(&results);
        if found == *summary || found.count > summary.count {
            return None;
        }
        let said = |summary: &ChildrenSummary| {
            let ChildrenSummary { count, digest } = summary;
            format!("{count} results of callees with the digest {digest}")
        };
        Some(Finding {
            kind: FindingKind::MissingEvent,
            place: end.place.clone(),
            found: said(&found),
            expected: said(summary),
        })
    }
}

fn begin(history: &mut History, id: RunId, place: &str, recorded: Recorded<Event>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if recorded.previous.is_some() && recorded.event.launched().is_some() {
        findings.push(unchained(place, recorded.previous, None));
    }
    match Run::replay(id, [recorded]) {
        Ok(run) => history.run = run,
        // Said once a run: nothing can be said of what follows.
        Err(_) if history.hashes.len() > 1 => (),
        Err(_) => findings.push(Finding {
            kind: FindingKind::MissingEvent,
            place: place.to_owned(),
            found: format!("no launch of {id} before it"),
            expected: "its launch".into(),
        }),
    }
    findings
}

/// After a break the rest is looked at as if it followed.
fn go_on(
    history: &mut History,
    mut run: Run,
    place: &str,
    mut recorded: Recorded<Event>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let last = Some(run.last.hash);
    if recorded.previous != last {
        findings.push(unchained(place, recorded.previous, last));
        recorded.previous = last;
    }
    let position = Position {
        sequence: recorded.sequence,
        hash: recorded.hash,
    };
    if let Err(broken) = run.apply(recorded) {
        findings.push(Finding {
            kind: FindingKind::Chain,
            place: place.to_owned(),
            found: "an event that does not follow".into(),
            expected: broken.reason.to_owned(),
        });
        run.last = position;
    }
    history.run = Some(run);
    findings
}

fn unchained(place: &str, found: Option<Digest>, expected: Option<Digest>) -> Finding {
    Finding {
        kind: FindingKind::Chain,
        place: place.to_owned(),
        found: format!("a chain from {}", shown(found)),
        expected: format!("{}, the event before it", shown(expected)),
    }
}
