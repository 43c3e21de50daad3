//! Checks the log afterwards: every run with its events, and conditions that all runs must meet.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use aod_domain::event::Recorded;
use aod_domain::flow::Granted;
use aod_domain::id::RunId;
use aod_domain::run::{Event, Holder, Lease, Phase, Run, Work};
use aod_domain::subject::{self, Subject};
use aod_ports::event_log::{EventLog, StoredEvent};
use jiff::Timestamp;

use crate::load;

/// Events of one page.
const PAGE: usize = 1_000;

/// All runs of a log.
#[derive(Debug, Default)]
pub(crate) struct History {
    runs: BTreeMap<RunId, Vec<Recorded<Event>>>,
    pub(crate) bucket: Bucket,
}

/// The bucket of the runs of the only rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    inside: BTreeSet<RunId>,
    /// Number of admitted runs.
    pub(crate) admitted: usize,
    /// Maximum number of concurrent runs.
    pub(crate) most: usize,
}

impl Bucket {
    fn enter(&mut self, runs: &[RunId]) {
        self.admitted += runs.len();
        self.inside.extend(runs);
        self.most = self.most.max(self.inside.len());
    }

    /// The violation of a bucket with `limit`.
    fn violation(&self, limit: usize) -> Option<String> {
        match (self.most, self.inside.len()) {
            (0, _) => Some("the rule admitted no run".to_owned()),
            (most, _) if most > limit => Some(format!("{most} runs were in a bucket for {limit}")),
            (_, 0) => None,
            (_, left) => Some(format!("{left} runs never left their bucket")),
        }
    }
}

/// Figures for the report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Runs that clients requested.
    pub(crate) roots: usize,
    /// Runs that runs called.
    pub(crate) nested: usize,
    /// Runs with more than one attempt.
    pub(crate) run_again: usize,
    /// Callees that a later attempt of their caller joined or found ended.
    pub(crate) joined: usize,
}

impl History {
    /// Reads all state events of all runs.
    pub(crate) async fn read(log: &dyn EventLog) -> anyhow::Result<Self> {
        let mut history = Self::default();
        let mut after = 0;
        loop {
            let page = log.read(subject::ALL, after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(history);
            };
            after = last.sequence;
            for stored in &page {
                history.take(stored)?;
            }
        }
    }

    fn take(&mut self, stored: &StoredEvent) -> anyhow::Result<()> {
        if Subject::is_admission(&stored.subject) {
            let granted = Recorded::<Granted>::decode(stored.sequence, &stored.bytes)?;
            self.bucket.enter(granted.event.runs());
        }
        if !Subject::is_state(&stored.subject) {
            return Ok(());
        }
        let run = Subject::run_of(&stored.subject).context("a state event of no run")?;
        let recorded = Recorded::decode(stored.sequence, &stored.bytes)?;
        if matches!(recorded.event, Event::Ended(_)) {
            self.bucket.inside.remove(&run);
        }
        self.runs.entry(run).or_default().push(recorded);
        Ok(())
    }

    /// Number of unfinished runs.
    pub(crate) fn open(&self) -> usize {
        let is_open = |events: &&Vec<Recorded<Event>>| results(events) == 0;
        self.runs.values().filter(is_open).count()
    }

    /// When a run ended.
    pub(crate) fn ended_at(&self, run: RunId) -> Option<Timestamp> {
        let is_end = |event: &&Recorded<Event>| matches!(event.event, Event::Ended(_));
        self.runs
            .get(&run)?
            .iter()
            .find(is_end)
            .map(|event| event.time)
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for events in self.runs.values().filter(|events| is_capsule(events)) {
            let attempts = leases(events).count();
            counts.run_again += usize::from(attempts > 1);
            match parent_of(events) {
                None => counts.roots += 1,
                Some((parent, first)) => {
                    counts.nested += 1;
                    let caller = self
                        .runs
                        .get(&parent)
                        .map_or(0, |events| last_attempt(events));
                    counts.joined += usize::from(caller > first);
                }
            }
        }
        counts
    }

    /// The violations: a run without or with two results, inconsistent events, a caller with more than one worker,
    /// unrequested runs, an overfull bucket.
    pub(crate) fn violations(&self, requests: usize) -> Vec<String> {
        let mut violations = Vec::new();
        let mut callees: BTreeMap<RunId, usize> = BTreeMap::new();
        for (&run, events) in &self.runs {
            match Run::replay(run, events.clone()) {
                Err(error) => violations.push(error.to_string()),
                Ok(Some(Run {
                    phase: Phase::Ended(_),
                    ..
                })) => (),
                Ok(_) => violations.push(format!("{run} has not ended")),
            }
            if results(events) > 1 {
                violations.push(format!("{run} has {} results", results(events)));
            }
            if let Some((parent, _)) = parent_of(events) {
                *callees.entry(parent).or_default() += 1;
            }
        }
        for (run, count) in callees.into_iter().filter(|(_, count)| *count > 1) {
            violations.push(format!("{run} has {count} callees instead of one"));
        }
        violations.extend(self.bucket.violation(load::BUCKET));
        let roots = self.counts().roots;
        if roots != requests {
            violations.push(format!("{requests} runs were requested, but {roots} exist"));
        }
        violations
    }

    /// For each run that `node` held at `killed_at`: seconds until the next lease.
    pub(crate) fn takeovers(&self, node: &str, killed_at: Timestamp) -> Vec<(RunId, Option<f64>)> {
        let mut takeovers = Vec::new();
        for (&run, events) in &self.runs {
            let before = events.iter().rfind(|event| event.time <= killed_at);
            let Some(last) = before else { continue };
            let Event::Leased(lease) = &last.event else {
                continue;
            };
            if !is_held_by(lease, node) {
                continue;
            }
            let after = || events.iter().filter(|event| event.time > killed_at);
            // Runs in progress when the node died count: it held no others.
            let is_ended = after().next().is_some_and(
                |event| matches!(&event.event, Event::Ended(ended) if ended.attempt == lease.attempt),
            );
            if is_ended {
                continue;
            }
            let next = after().find(|event| matches!(event.event, Event::Leased(_)));
            let seconds = next.map(|event| event.time.duration_since(killed_at).as_secs_f64());
            takeovers.push((run, seconds));
        }
        takeovers
    }
}

fn is_held_by(lease: &Lease, node: &str) -> bool {
    match &lease.holder {
        Holder::Node { node: holder, .. } => holder.to_string() == node,
        Holder::Gateway { .. } => false,
    }
}

fn is_capsule(events: &[Recorded<Event>]) -> bool {
    let launched = events.first().and_then(|first| first.event.launched());
    launched.is_some_and(|launched| matches!(launched.work, Work::Capsule { .. }))
}

/// The caller of a run, and its attempt.
fn parent_of(events: &[Recorded<Event>]) -> Option<(RunId, u32)> {
    let parent = events.first()?.event.launched()?.parent.as_ref()?;
    Some((parent.run, parent.attempt))
}

fn leases(events: &[Recorded<Event>]) -> impl Iterator<Item = u32> {
    events.iter().filter_map(|event| match &event.event {
        Event::Leased(lease) => Some(lease.attempt),
        _ => None,
    })
}

fn last_attempt(events: &[Recorded<Event>]) -> u32 {
    leases(events).last().unwrap_or_default()
}

fn results(events: &[Recorded<Event>]) -> usize {
    let is_result = |event: &&Recorded<Event>| matches!(event.event, Event::Ended(_));
    events.iter().filter(is_result).count()
}
