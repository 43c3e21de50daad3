//! State events: each run follows its rules, and the runs of a tree name one another.

use std::collections::{BTreeMap, BTreeSet};

use super::chains::{Chain, Claim};
use crate::audit::{Finding, FindingKind};
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::RunId;
use crate::run::{ChildrenSummary, Ended, Event, NotesSummary, Parent, Position, Run};

/// The parts of a result that commit to other events.
#[derive(Debug)]
pub(super) struct End {
    pub(super) place: String,
    sequence: u64,
    hash: Digest,
    pub(super) attempt: u32,
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
    end: Option<End>,
    violations: Vec<Finding>,
}

/// A call, from its launch.
#[derive(Debug)]
struct Called {
    place: String,
    run: RunId,
    parent: Parent,
}

impl Called {
    /// The id of a callee follows from its caller and the key of the call.
    fn check(&self) -> Option<Finding> {
        let Self { place, run, parent } = self;
        let expected = parent.run.child(&parent.call_key);
        (expected != *run).then(|| Finding {
            kind: FindingKind::Event,
            place: place.clone(),
            found: format!("{run} as the call {} of {}", parent.call_key, parent.run),
            expected: expected.to_string(),
        })
    }
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

    pub(super) fn ends(&self) -> impl Iterator<Item = (RunId, &End)> {
        let ends = self.runs.iter();
        ends.filter_map(|(run, history)| Some((*run, history.end.as_ref()?)))
    }

    pub(super) fn take(&mut self, id: RunId, place: &str, recorded: Recorded<Event>) {
        let history = self.runs.entry(id).or_default();
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
        history.apply(id, place, recorded);
    }

    /// Checks that need all events. Events of `altered` runs follow no rules.
    pub(super) fn finish(self, root: RunId, altered: &BTreeSet<RunId>) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.runs.contains_key(&root) {
            findings.push(Finding {
                kind: FindingKind::MissingEvent,
                place: "events".into(),
                found: format!("no event of {root}"),
                expected: "the events of the root".into(),
            });
        }
        findings.extend(self.calls.iter().filter_map(Called::check));
        let summed = self.ends().filter_map(|(run, end)| {
            let summary = end.summary.as_ref()?;
            self.summed(run, end, summary)
        });
        findings.extend(summed);
        for (run, history) in self.runs {
            if !altered.contains(&run) {
                findings.extend(history.violations);
            }
        }
        findings
    }

    /// The results of the callees are those of the caller's result, for a caller with too many callees to list. If there
    /// are more callees than it counted, for example because it never learned of one, it is unknown which of them it
    /// counted.
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
            format!("{count} results with the digest {digest}")
        };
        Some(Finding {
            kind: FindingKind::MissingEvent,
            place: format!("callees of {run}"),
            found: said(&found),
            expected: format!("{}, which {} names", said(summary), end.place),
        })
    }
}

impl History {
    /// Applies the event at `place`, and notes if it violates a rule. The chain of hashes is checked separately.
    fn apply(&mut self, id: RunId, place: &str, mut recorded: Recorded<Event>) {
        let wrong = |kind, found: String, expected: &str| Finding {
            kind,
            place: place.to_owned(),
            found,
            expected: expected.to_owned(),
        };
        let Some(mut run) = self.run.take() else {
            let is_named = recorded.previous.is_some();
            match Run::replay(id, [recorded]) {
                Ok(run) => self.run = run,
                // The chain lacks the launch too: reported once.
                Err(_) if is_named => (),
                Err(_) => self.violations.push(wrong(
                    FindingKind::MissingEvent,
                    format!("no launch of {id} before this event"),
                    "its launch",
                )),
            }
            return;
        };
        recorded.previous = Some(run.last.hash);
        let position = Position {
            sequence: recorded.sequence,
            hash: recorded.hash,
        };
        if let Err(broken) = run.apply(recorded) {
            let found = "an event that does not follow".to_owned();
            self.violations
                .push(wrong(FindingKind::Chain, found, broken.reason));
            run.last = position;
        }
        self.run = Some(run);
    }
}

/// What an event names.
pub(super) fn claims(recorded: &Recorded<Event>) -> Vec<Claim> {
    let mut claims = vec![Claim::Previous(recorded.previous)];
    let launched = recorded.event.launched();
    let parent = launched.and_then(|launched| launched.parent.as_ref());
    claims.extend(parent.map(|parent| Claim::Any(Chain::State(parent.run), parent.event)));
    claims
}

/// What the result of `run` names.
pub(super) fn claims_of_result(run: RunId, ended: &Ended) -> impl Iterator<Item = Claim> {
    let children = ended.children.iter();
    let children = children.map(|child| Claim::Result(child.run, child.hash));
    let notes = ended.notes.iter();
    children.chain(notes.map(move |notes| Claim::Any(Chain::Notes(run), notes.hash)))
}
